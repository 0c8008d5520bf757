"""The examples of public write-ups on what XLA and torch.export refuse, in the form that they are refused in.

Their sources: why a PyTorch example is incompatible with XLA, the limits of torch.compile, and what makes
torch_xla compile again. A model that keeps state is called on all of its calls in turn.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from aotpipe import Dim
from tests.programs.cases import Models, uniform


class ConditionalModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(10, 5)

    def forward(self, x):
        output = self.linear(x)
        if torch.sum(output) > 0:
            return torch.relu(output)
        else:  # noqa: RET505
            return torch.sigmoid(output)


class DynamicSizeModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(10, 20)

    def forward(self, x, size_factor):
        output = self.linear(x)
        new_size = int(size_factor * 5)
        return output[:new_size]


def repeated_addition(x, repetitions):
    res = x
    for _ in range(repetitions):
        res = res + x
    return res


class IterativeAdditionModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(10, 5)

    def forward(self, x, reps):
        output = self.linear(x)
        return repeated_addition(output, reps)


class MyForward(nn.Module):
    def forward(self, x):
        if x.sum() > 0:  # This is a common source of graph breaks
            return x.sin()
        else:  # noqa: RET505
            return x.cos()


class MyModel(nn.Module):
    def forward(self, x):
        if x.mean() > 0:  # Data-dependent control flow
            return x + 1
        else:  # noqa: RET505
            return x * 2


class MyExportableModel(nn.Module):
    def forward(self, x, y):
        return torch.matmul(x, y)


class MyFixedModel(nn.Module):
    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda: x + 1, lambda: x * 2)


class DynamicActivation(nn.Module):
    def forward(self, x):
        # The condition (x.mean() > 0) depends on the *value* of x
        if x.mean() > 0:
            return torch.relu(x)
        else:  # noqa: RET505
            return torch.sigmoid(x)


class DynamicActivationRefactored(nn.Module):
    def forward(self, x):
        return torch.cond(x.mean() > 0, lambda: torch.relu(x), lambda: torch.sigmoid(x))


class NewtonRaphsonSolver(nn.Module):
    def __init__(self, tol=1e-6, max_iter=100):
        super().__init__()
        self.tol = tol
        self.max_iter = max_iter

    def forward(self, x_init):
        x = x_init
        diff = torch.tensor(1.0)  # Placeholder for difference
        iterations = 0
        # Loop condition depends on 'diff' (a tensor value)
        while diff.abs().max() > self.tol and iterations < self.max_iter:
            # For simplicity, let's just make 'x' change and 'diff' decrease
            x_new = x - 0.1 * x  # Dummy update
            diff = x_new - x
            x = x_new
            iterations += 1
            print(f"  Iteration {iterations}: x={x.item():.4f}, diff={diff.item():.4f}")
        return x


class NewtonRaphsonSolverRefactored(nn.Module):
    """By hand with torch.while_loop; the step is 0-d at first and has a dim after a trip."""

    def __init__(self, tol=1e-6, max_iter=100):
        super().__init__()
        self.tol = tol
        self.max_iter = max_iter

    def forward(self, x_init):
        initial_loop_vars = (x_init, torch.tensor(1.0), torch.tensor(0))

        def loop_condition(current_x, current_diff, iterations):
            return (current_diff.abs().max() > self.tol) & (iterations < self.max_iter)

        def loop_body(current_x, current_diff, iterations):
            x_new = current_x - 0.1 * current_x
            diff_new = x_new - current_x
            iterations_new = iterations + 1
            return (x_new, diff_new, iterations_new)

        final_x, _, _ = torch.while_loop(loop_condition, loop_body, initial_loop_vars)
        return final_x


class GroupedAttention(nn.Module):
    """Skips the mask where all tokens are of one document."""

    def _doc_ids_are_uniform(self, doc_ids):
        return bool((doc_ids == doc_ids[..., :1]).all().item())

    def forward(self, q, k, v, doc_ids):
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        if not self._doc_ids_are_uniform(doc_ids):
            same = doc_ids[:, :, None] == doc_ids[:, None, :]
            scores = scores.masked_fill(~same, float("-inf"))
        return scores.softmax(-1) @ v


class BoundaryCheck(nn.Module):
    """A state that starts anew at boundaries, of which there mostly are none."""

    def forward(self, x, boundary):
        if boundary.any().item():
            parts = []
            h = torch.zeros_like(x[:, 0])
            for t in range(x.shape[1]):
                h = torch.where(boundary[:, t, None], x[:, t], 0.9 * h + x[:, t])
                parts.append(h)
            return torch.stack(parts, 1)
        decay = 0.9 ** torch.arange(x.shape[1] - 1, -1, -1.0)
        weights = torch.tril(decay[None, :] / decay[:, None])
        return weights.nan_to_num() @ x


class OverflowCounter(nn.Module):
    """Counts in a Python int what the experts had no place for."""

    def __init__(self, experts=3, width=8, capacity=2):
        super().__init__()
        self.gate = nn.Linear(width, experts)
        self.experts = nn.ModuleList(nn.Linear(width, width) for _ in range(experts))
        self.capacity = capacity
        self._overflow_total = 0

    def forward(self, x):
        choice = self.gate(x).argmax(-1)
        place = (F.one_hot(choice, len(self.experts)).cumsum(0) - 1).gather(1, choice[:, None])[:, 0]
        dropped = place >= self.capacity
        self._overflow_total += int(dropped.sum().item())
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            out = torch.where(((choice == number) & ~dropped)[:, None], expert(x), out)
        if self._overflow_total > 6:
            out = out * 0.5
        return out, self._overflow_total


class CapacityMoE(nn.Module):
    """Experts that take as many tokens as the call's own load asks for, at most half of them."""

    def __init__(self, experts=3, width=8):
        super().__init__()
        self.gate = nn.Linear(width, experts)
        self.experts = nn.ModuleList(nn.Linear(width, width) for _ in range(experts))

    def forward(self, x):
        choice = self.gate(x).argmax(-1)
        capacity = min(int(nn.functional.one_hot(choice, 3).sum(0).max()), x.shape[0] // 2)
        out = torch.zeros_like(x)
        dropped = 0
        for number, expert in enumerate(self.experts):
            mine = choice == number
            place = mine.cumsum(0) - 1
            kept = mine & (place < capacity)
            out = torch.where(kept[:, None], expert(x), out)
            dropped += int((mine & ~kept).sum())
        return out, dropped


class EnrichedBatch(nn.Module):
    """A batch that carries more or less beside its tokens."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(9, 8)

    def forward(self, batch):
        x = self.embed(batch["tokens"])
        if "doc_ids" in batch:
            ids = batch["doc_ids"]
            x = x * (ids == ids[:, :1]).unsqueeze(-1)
        if "fim_boundaries" in batch and batch["fim_boundaries"].any():
            x = x + batch["fim_boundaries"].unsqueeze(-1)
        if batch.get("valid_token_counts") is not None:
            x = x * (torch.arange(x.shape[1]) < batch["valid_token_counts"][:, None]).unsqueeze(-1)
        return x.sum(1)


class VaryingTopK(nn.Module):
    def forward(self, x, k):
        values, _ = torch.topk(x, int(k))
        if values.min() > 0:
            return values.sum()
        return values.mean()


class MaskedGather(nn.Module):
    def forward(self, x, mask):
        chosen = x[mask]
        if chosen.shape[0] == 0:
            return x.mean(0)
        return chosen.mean(0)


class ValidTokens(nn.Module):
    """Attention over each row's own number of tokens."""

    def forward(self, q, k, v, valid_token_counts):
        out = torch.zeros_like(q)
        for row in range(q.shape[0]):
            n = valid_token_counts[row].item()
            scores = q[row] @ k[row, :n].T
            out[row] = scores.softmax(-1) @ v[row, :n]
        return out


def _attention(ids: list[list[int]]) -> dict[str, torch.Tensor]:
    parts = {name: uniform(2, 4, 8, seed=seed) for seed, name in enumerate("qkv")}
    return {**parts, "doc_ids": torch.tensor(ids)}


def _valid(*counts: int) -> dict[str, torch.Tensor]:
    parts = {name: uniform(2, 4, 8, seed=seed) for seed, name in enumerate("qkv")}
    return {**parts, "valid_token_counts": torch.tensor(counts)}


def _enriched(*lacking: str, fim: float = 1.0) -> dict[str, Any]:
    batch = {
        "tokens": torch.arange(8).reshape(2, 4),
        "doc_ids": torch.tensor([[0, 0, 1, 1]] * 2),
        "fim_boundaries": torch.tensor([[0.0, 0.0, fim, 0.0]] * 2),
        "valid_token_counts": torch.tensor([4, 2]),
    }
    return {"batch": {key: value for key, value in batch.items() if key not in lacking}}


X = uniform(3, 10)
SIGNS = [{"x": uniform(5) + by} for by in (1.5, -1.5, 0.0)]
MODELS: Models = {
    "conditional": lambda: (ConditionalModel(), [{"x": X}, {"x": -X}, {"x": 9 * X}], None),
    "dynamic_size": lambda: (
        DynamicSizeModel(),
        [{"x": uniform(6, 10), "size_factor": torch.tensor(f)} for f in (0.5, 0.2, 1.0)],
        None,
    ),
    "iterative_addition": lambda: (
        IterativeAdditionModel(),
        [{"x": X, "reps": torch.tensor(n)} for n in (3, 0, 1, 9)],
        {"x": {0: Dim("batch", max=8)}, "reps": None},
    ),
    "iterative_addition_of_an_int": lambda: (
        IterativeAdditionModel(),
        [{"x": X, "reps": n} for n in (3, 0, 1, 9)],
        None,
    ),
    "my_forward": lambda: (MyForward(), SIGNS, None),
    "my_model": lambda: (MyModel(), SIGNS, None),
    "my_exportable_model": lambda: (
        MyExportableModel(),
        [{"x": uniform(rows, 5), "y": uniform(5, columns)} for rows, columns in ((10, 20), (1, 3), (32, 1))],
        {"x": {0: Dim("batch_size_x", max=64)}, "y": {1: Dim("output_dim_y", max=64)}},
    ),
    "my_fixed_model": lambda: (MyFixedModel(), SIGNS, None),
    "dynamic_activation": lambda: (DynamicActivation(), SIGNS, None),
    "dynamic_activation_refactored": lambda: (DynamicActivationRefactored(), SIGNS, None),
    "newton": lambda: (
        NewtonRaphsonSolver(),
        [{"x_init": torch.tensor([v])} for v in (5.0, 1e-3, -80.0, 0.0)],
        None,
    ),
    "refactored_newton": lambda: (
        NewtonRaphsonSolverRefactored(),
        [{"x_init": torch.tensor([v])} for v in (5.0, 1e-3, -80.0)],
        None,
    ),
    "grouped_attention": lambda: (
        GroupedAttention(),
        [_attention([[0, 0, 0, 0]] * 2), _attention([[0, 0, 1, 1], [0, 1, 1, 2]])],
        None,
    ),
    "boundary_check": lambda: (
        BoundaryCheck(),
        [
            {"x": uniform(2, 4, 3), "boundary": torch.tensor([row] * 2, dtype=torch.bool)}
            for row in ([0, 0, 0, 0], [1, 0, 1, 0], [0, 0, 0, 1])
        ],
        None,
    ),
    "overflow_counter": lambda: (OverflowCounter(), [{"x": uniform(8, 8, seed=s)} for s in range(5)], None),
    "capacity_moe": lambda: (CapacityMoE(), [{"x": uniform(8, 8, seed=s)} for s in range(3)], None),
    "enriched_batch": lambda: (
        EnrichedBatch(),
        [
            _enriched(),
            _enriched(fim=0.0),
            _enriched("doc_ids"),
            _enriched("fim_boundaries", "valid_token_counts"),
            _enriched("doc_ids", "fim_boundaries", "valid_token_counts"),
        ],
        None,
    ),
    "varying_topk": lambda: (
        VaryingTopK(),
        [{"x": uniform(9) + b, "k": torch.tensor(k)} for b, k in ((0.0, 3), (2.0, 1), (0.0, 9))],
        None,
    ),
    "masked_gather": lambda: (
        MaskedGather(),
        [
            {"x": uniform(5, 3), "mask": torch.tensor(m, dtype=torch.bool)}
            for m in ([1, 0, 1, 1, 0], [0] * 5, [1] * 5)
        ],
        None,
    ),
    "valid_tokens": lambda: (ValidTokens(), [_valid(2, 4), _valid(1, 3), _valid(4, 4)], None),
}
