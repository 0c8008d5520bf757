"""Decoders and parsers of sequences."""

from __future__ import annotations

from collections import Counter, defaultdict

import torch
from torch import nn

from tests.programs.written import program, seeded

LOGITS = [seeded(6, 5, seed=n) * 3 for n in range(4)]


@program(*LOGITS, torch.zeros(6, 5))
def ctc_collapse(logits):
    blank, out, previous = 0, [], -1
    for token in logits.argmax(-1).tolist():
        if token not in (previous, blank):
            out.append(token)
        previous = token
    return len(out), sum(out)


@program(*LOGITS)
def ctc_confidence(logits):
    best, score = logits.softmax(-1).max(-1), 1.0
    tokens = []
    for p, t in zip(best.values, best.indices, strict=True):
        if t != 0 and (not tokens or tokens[-1] != t):
            tokens.append(t)
            score = score * p
    return torch.stack(tokens) if tokens else torch.full((1,), -1), score


@program(*((seeded(5, 3, seed=n), seeded(3, 3, seed=n + 9)) for n in range(3)))
def viterbi(emissions, transitions):
    score, back = emissions[0], []
    for t in range(1, emissions.shape[0]):
        total = score[:, None] + transitions
        best, index = total.max(0)
        score = best + emissions[t]
        back.append(index)
    path = [int(score.argmax())]
    for index in reversed(back):
        path.append(int(index[path[-1]]))
    path.reverse()
    return torch.tensor(path), score.max()


@program(*((seeded(8, seed=n),) for n in range(4)))
class GreedyDecoder(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.cell, self.head = nn.Embedding(7, 8), nn.GRUCell(8, 8), nn.Linear(8, 7)

    def forward(self, h):
        tokens, token = [], torch.zeros(1, dtype=torch.long)
        h = h[None]
        for _ in range(6):
            h = self.cell(self.embed(token), h)
            token = self.head(h).argmax(-1)
            if token == 2:
                break
            tokens.append(token.item())
        return torch.tensor(tokens) if tokens else torch.full((1,), -1), len(tokens)


@program(*((seeded(8, seed=n),) for n in range(3)))
class NoRepeatNgrams(nn.Module):
    """Never the same pair of tokens twice."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.table = nn.Parameter(torch.randn(5, 5))

    def forward(self, bias):
        seen, out = set(), [int(bias[:5].argmax())]
        for _ in range(5):
            scores = self.table[out[-1]] + bias[:5]
            for token in range(5):
                if (out[-1], token) in seen:
                    scores[token] = -1e9
            best = int(scores.argmax())
            seen.add((out[-1], best))
            out.append(best)
        return torch.tensor(out), len(seen)


@program(*((seeded(4, 6, seed=n) * 4,) for n in range(3)))
def repetition_penalty(logits):
    counts, out = {}, []
    for row in logits:
        scores = row.clone()
        for token, n in counts.items():
            scores[token] = scores[token] - 2.0 * n
        token = int(scores.argmax())
        counts[token] = counts.get(token, 0) + 1
        out.append(token)
    return torch.tensor(out), max(counts.values())


@program(*((seeded(6, seed=n), torch.tensor(p)) for n, p in enumerate([0.5, 0.9, 0.1])))
def nucleus(logits, p):
    probabilities, order = logits.softmax(-1).sort(descending=True)
    total, kept = 0.0, []
    for q, token in zip(probabilities, order, strict=True):
        kept.append(token)
        total += q
        if total >= p:
            break
    mask = torch.zeros(6)
    for token in kept:
        mask[token] = 1
    return mask, len(kept)


@program(*((seeded(4, 5, seed=n) * 2,) for n in range(3)))
def beam_search(logits):
    beams = [(0.0, torch.zeros(0, dtype=torch.long))]
    for row in logits.log_softmax(-1):
        found = []
        for score, tokens in beams:
            top, index = row.topk(2)
            for s, i in zip(top, index, strict=True):
                found.append((score + s, torch.cat([tokens, i[None]])))
        beams = sorted(found, key=lambda each: each[0], reverse=True)[:2]
    return beams[0][1], beams[0][0], beams[1][1]


@program(*((torch.tensor(t),) for t in ([1, 1, 2, 2, 2, 3], [4, 4, 4, 4, 4, 4], [1, 2, 1, 2, 1, 2])))
def run_length(tokens):
    values, lengths = [], []
    for t in tokens.tolist():
        if values and values[-1] == t:
            lengths[-1] += 1
        else:
            values.append(t)
            lengths.append(1)
    return torch.tensor(values), torch.tensor(lengths)


@program(*((torch.tensor(t),) for t in ([1, 1, 2, 2, 0], [1, 2, 2, 1, 0], [2, 1, 0, 0, 0], [1, 1, 1, 0, 0])))
def balanced_brackets(tokens):
    depth = deepest = 0
    for t in tokens.tolist():
        match t:
            case 1:
                depth += 1
            case 2 if depth > 0:
                depth -= 1
            case 2:
                raise ValueError("unbalanced")
            case _:
                pass
        deepest = max(deepest, depth)
    return depth == 0, deepest


@program(*((torch.tensor(t),) for t in ([3, 4, 10, 2, 12, 0], [5, 1, 11, 0, 0, 0], [1, 2, 12, 3, 10, 0])))
def postfix_calculator(tokens):
    stack = []
    for t in tokens.tolist():
        if t == 0:
            break
        if t < 10:
            stack.append(float(t))
            continue
        b, a = stack.pop(), stack.pop()
        stack.append(a + b if t == 10 else a - b if t == 11 else a * b)
    return stack.pop()


@program(*((torch.tensor(t),) for t in ([1, 2, 1, 2, 3], [1, 1, 1, 1, 1], [5, 4, 3, 2, 1])))
def most_frequent_pair(tokens):
    """One step of byte pair encoding."""
    ids = tokens.tolist()
    pairs = Counter(zip(ids, ids[1:], strict=False))  # noqa: RUF007  # as people write it
    (a, b), n = pairs.most_common(1)[0]
    out, i = [], 0
    while i < 5:
        if i < 4 and ids[i] == a and ids[i + 1] == b:
            out.append(9)
            i += 2
        else:
            out.append(ids[i])
            i += 1
    return torch.tensor(out), n


@program(*((torch.tensor(a), torch.tensor(b)) for a, b in (([1, 2, 3], [1, 3, 3]), ([4, 4, 4], [1, 2, 3]))))
def edit_distance(a, b):
    previous = list(range(4))
    for i in range(3):
        current = [i + 1]
        for j in range(3):
            if a[i] == b[j]:
                current.append(previous[j])
            else:
                current.append(1 + min(previous[j], previous[j + 1], current[j]))
        previous = current
    return previous[-1]


@program(*((torch.tensor(t),) for t in ([2, 7, 3, 5], [1, 8, 1, 8], [0, 0, 0, 0])))
def two_sum(numbers):
    seen = {}
    for i, v in enumerate(numbers.tolist()):
        if 9 - v in seen:
            return torch.tensor([seen[9 - v], i])
        seen[v] = i
    return torch.tensor([-1, -1])


@program(*((torch.tensor(t), seeded(5)) for t in ([0, 1, 0, 2, 1], [3, 3, 3, 3, 3])))
def grouped_means(labels, values):
    sums, counts = defaultdict(float), defaultdict(int)
    for label, value in zip(labels.tolist(), values.tolist(), strict=True):
        sums[label] += value
        counts[label] += 1
    return torch.tensor([sums[k] / counts[k] for k in sorted(sums)]), len(sums)


@program(*((seeded(6, seed=n), seeded(6, seed=n + 5)) for n in range(3)))
def speculative_acceptance(draft, target):
    accepted = 0
    for p, q in zip(draft.sigmoid(), target.sigmoid(), strict=True):
        if q < p * 0.8:
            break
        accepted += 1
    else:
        return accepted, torch.tensor(1.0)
    return accepted, target[accepted]
