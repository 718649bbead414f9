"""The peak and the cost of a step for a choice of saved values, by looking at every moment.

The twin of `kernels/saved_memory.py`.
"""

from __future__ import annotations

from itertools import pairwise

from pebbler.run.torch.backend.kernels.step_arrays import CALL, GIVEN, INLINED, VIEW


def lists(first, flat):
    return [list(map(int, flat[a:b])) for a, b in pairwise(first)]


class NaiveStep:
    """A joint graph as lists, with the rules written down one by one."""

    def __init__(self, arrays):
        self.inputs = lists(arrays.first_input, arrays.inputs)
        self.users = lists(arrays.first_user, arrays.users)
        self.kind, self.storage, self.size = arrays.kind.tolist(), arrays.storage.tolist(), arrays.size.tolist()
        self.drawing = arrays.drawing.tolist()
        self.cost, self.byte_cost, self.launch_cost = arrays.cost.tolist(), arrays.byte_cost, arrays.launch_cost
        self.tangent, self.fixed = arrays.tangent.tolist(), arrays.fixed.tolist()
        self.forward_end = {i for i, end in enumerate(arrays.forward_end) if end}
        self.backward_end = {i for i, end in enumerate(arrays.backward_end) if end}
        self.nodes = range(len(self.kind))
        self.given = {i for i in self.nodes if self.kind[i] == GIVEN}

    def ancestors(self, node, stop):
        """Return a node and everything it needs, `stop` apart."""
        if node in stop:
            return set()
        found = {node}
        for source in self.inputs[node]:
            found |= self.ancestors(source, stop | found)
        return found

    def simulate(self, saved, fusing, sent=()):
        """Return what is saved in the end, bytes by place and cost of forward and backward, and whether that is allowed.

        `sent` says for values that go to the host before which node they have left, -1 for the end, and are fetched.
        """
        backward, done = [], set(saved) | self.given
        for node in self.nodes:
            if self.tangent[node] or node in self.backward_end:
                batch = sorted(self.ancestors(node, done))
                backward += batch
                done |= set(batch)
        needed = {source for node in backward for source in self.inputs[node]} | self.backward_end
        saved = {i for i in needed if i in saved or (i in self.given and self.fixed[i])}
        forward = sorted(set().union(*(self.ancestors(i, self.given) for i in saved | self.forward_end)))
        own = {self.storage[i] for i in saved} - self.given
        kept = saved | self.forward_end
        left = {i: (forward.index(node) if node >= 0 else len(forward)) - 1 for i, node, _ in sent}
        fetched = {i: backward.index(node) for i, _, node in sent}
        passes = (
            self.run(forward, kept - set(left), set(), set(), fusing, left, {}),
            self.run(
                backward,
                self.backward_end,
                own | {i for i in self.given if self.tangent[i]},
                own - {self.storage[i] for i in self.forward_end},
                fusing,
                {},
                fetched,
            ),
        )
        return (
            saved,
            [held for held, _ in passes],
            [cost for _, cost in passes],
            not any(self.fixed[i] for i in backward),
        )

    def run(self, order, results, held, donated, fusing, left, fetched):
        """Return the bytes that are held at every place, and what it costs."""
        results = results | {self.storage[i] for i in results}
        place = {node: t for t, node in enumerate(order)}
        readers = {i: [u for u in self.users[i] if u in place] for i in self.nodes}
        level = {}
        for node in order:
            above = [level[s] + (self.kind[s] == CALL) for s in self.inputs[node] if s in place]
            level[node] = max(above, default=0)

        def real(node):
            """Who reads a value, through views; a view that nobody reads is read by nobody."""
            return [r for u in readers[node] for r in (real(u) if self.kind[u] == VIEW else [u])]

        def needs_memory(node):
            who = real(node)
            if self.kind[node] != INLINED or not fusing or node in results or node in left or not who:
                return True
            several = len(who) > 1 and any(level[r] != level[node] for r in who)
            return several or any(self.kind[r] == CALL for r in who)

        written = {node for node in order if needs_memory(node)}

        def last(node):
            """When a node is read last: what is not written is read when its readers run."""
            ends = [last(u) if self.kind[u] == VIEW or u not in written else place[u] for u in readers[node]]
            return max(ends, default=place.get(node, -1))

        spans = {}  # first and last moment, by storage and whether it is made here
        for i in held:
            looks = [j for j in self.nodes if self.storage[j] == i]
            ends = [last(j) for j in looks if j in place and i not in place] + [
                last(u) if self.kind[u] == VIEW or u not in written else place[u]
                for j in looks
                if j not in place
                for u in readers[j]
            ]
            if i in results or ends:
                # What is fetched is there just before the node that it is fetched for runs.
                spans[i, False] = fetched[i] - 0.5 if i in fetched else -1, len(order) if i in results else max(ends)
        for i in order:
            if self.storage[i] == i and i in written:
                # What is sent is there until just after the node that it has left after.
                spans[i, True] = place[i], len(order) if i in results else max(last(i), left.get(i, -1) + 0.5)
        begin = sum(self.size[i] for (i, _), (start, _) in spans.items() if start < 0)
        most = []
        for t, node in enumerate(order):
            alive = sum(self.size[i] for (i, _), (start, end) in spans.items() if start <= t <= end)
            new = self.size[node] if (node, True) in spans else 0
            leaving = [
                self.size[i] for (i, made), (start, end) in spans.items()
                if end == t and start < t and (made or i in donated) and i not in results
            ]  # fmt: skip
            if fusing and self.kind[node] != CALL and new and max(leaving, default=0) == new:
                alive -= new
            most.append(alive)

        def kernels(node):
            """The levels of the kernels that read a value, through views and through what is computed inside of them."""
            found = set()
            for u in readers[node]:
                inside = self.kind[u] == VIEW or u not in written
                found |= kernels(u) if inside else {level[u]} if self.kind[u] != CALL else set()
            return found

        moved = 0
        for node in self.nodes:
            fused = node in place and self.kind[node] != CALL
            if (node in place and self.kind[node] == VIEW) or (fused and node not in written):
                continue
            moved += self.size[node] if fused else 0
            ends = {min(kernels(node)), max(kernels(node))} if kernels(node) else set()
            its_own = fused and ends and level[node] == min(ends)
            moved += self.size[self.storage[node]] * (len(ends) - bool(its_own))
        stored = [level[i] for i in order if i in written and self.kind[i] not in (CALL, VIEW)]
        launches = sum(a != b for a, b in pairwise([None, *stored]))
        calls = sum(self.cost[i] if self.kind[i] == CALL else self.drawing[i] for i in order if self.kind[i] != VIEW)
        return most or [begin], calls + moved * self.byte_cost + launches * self.launch_cost
