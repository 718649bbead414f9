"""The energy counters of CPU packages and their memory, through Linux's powercap (RAPL)."""

from __future__ import annotations

from pathlib import Path

__all__ = ["POWERCAP", "RaplCounter", "rapl_counters"]

POWERCAP = Path("/sys/class/powercap")
_MICRO = 1e-6


class RaplCounter:
    """Joules of one package, or of the memory behind it. The register wraps; read once per round, it loses nothing."""

    wraps = True

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self._file = name, folder / "energy_uj"
        self._range = int((folder / "max_energy_range_uj").read_text())
        self._last, self._rounds = self._microjoules(), 0

    def read(self) -> float:
        """Return the joules so far."""
        now = self._microjoules()
        if now < self._last:
            self._rounds += 1
        self._last = now
        return (now + self._rounds * self._range) * _MICRO

    def _microjoules(self) -> int:
        return int(self._file.read_text())


def rapl_counters(root: Path = POWERCAP) -> tuple[list[RaplCounter], str]:
    """Return a counter for every package and for memory beside it, and why there is none where there is none.

    Cores and the like lie inside their package and are not counted again; `psys` covers the packages themselves and is left out.
    """
    if not root.is_dir():
        return [], f"CPU: there is no {root} (RAPL is Linux's, and virtual machines have none)"
    counters, failures = [], []
    # Zones that talk through memory-mapped registers (intel-rapl-mmio) count the same packages again.
    for folder in sorted(root.glob("intel-rapl:*")):
        try:
            name = (folder / "name").read_text().strip()
            if name.startswith("package") or name == "dram":
                counters.append(RaplCounter(_shown(name, folder), folder))
        except (OSError, ValueError) as error:
            failures.append(f"{folder.name}/energy_uj: {getattr(error, 'strerror', None) or error}")
    if failures:
        return [], f"CPU: {'; '.join(failures)} (often readable for root only)"
    return counters, "" if counters else f"CPU: no package in {root}"


def _shown(name: str, folder: Path) -> str:
    package = folder.name.split(":")[1]
    return f"CPU {package} memory" if name == "dram" else f"CPU {package}"
