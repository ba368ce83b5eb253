"""Checks in PyTorch that GRPO teaches `seedling` each of its skills, and with which hyper-parameters.

    python models/check_learnability.py --skills sort,copy --seeds 1,2 --steps 50

One line of JSON per run: the rate of exact match on held-out words at temperature 1 before and after (computed, not
sampled), the mean reward of every step, and the first step at which the mean of three passed 0.9.

GRPO as the platform does it: `prompts` words x `samples` completions a step at temperature 1, reward 1 for an exact
match and else 0, advantages normalised within each word's group (population standard deviation), importance-sampling
loss summed over tokens and divided by the number of rollouts, LoRA on all seven modules, AdamW (0.9, 0.95) without
decay, gradient clipped at 1.
"""

import argparse
import json
import pathlib

import torch
from transformers import LlamaForCausalLM

from pretrain_seedling import ARROW, BOS, EOS, LOWER_A, PAD, SKILLS, WORDS_PER_LENGTH, Packing, draw_words

MAX_ANSWER = 13  # twelve letters and <eos>
MODULES = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


class Adapter:
    """A and B of every adapted matrix; the model runs on W + (alpha / rank) B A, which autograd sees through."""

    def __init__(self, model, rank, alpha, seed):
        generator = torch.Generator().manual_seed(seed)
        self.model, self.scale, self.pairs = model, alpha / rank, {}
        for name, weight in model.named_parameters():
            if name.split(".")[-2] in MODULES:
                rows, columns = weight.shape
                a = (2 * torch.rand(rank, columns, generator=generator) - 1) / columns**0.5
                self.pairs[name] = (a.requires_grad_(), torch.zeros(rows, rank, requires_grad=True))

    def parameters(self):
        return [tensor for pair in self.pairs.values() for tensor in pair]

    def merged(self):
        weights = dict(self.model.named_parameters())
        return {name: weights[name] + self.scale * (b @ a) for name, (a, b) in self.pairs.items()}

    def bind(self, merged):
        """The model as a function of its keyword arguments, with these weights."""
        return lambda **inputs: torch.func.functional_call(self.model, merged, (), inputs)


def logits_of(call, tokens):
    """Rows are padded on the right, which a causal mask hides from the tokens before."""
    return call(input_ids=tokens, use_cache=False).logits


@torch.no_grad()
def sample(call, prompts, generator):
    """Completes every prompt at temperature 1. Returns tokens [n, longest + 13] and a mask of the sampled ones."""
    lengths = torch.tensor([len(prompt) for prompt in prompts])
    tokens = torch.full((len(prompts), int(lengths.max()) + MAX_ANSWER), PAD)
    for row, prompt in enumerate(prompts):
        tokens[row, : len(prompt)] = torch.tensor(prompt)
    sampled = torch.zeros_like(tokens, dtype=torch.bool)
    alive = torch.arange(len(prompts))
    for offset in range(MAX_ANSWER):
        width = int(lengths[alive].max()) + offset
        logits = logits_of(call, tokens[alive, :width])
        last = logits[torch.arange(len(alive)), lengths[alive] + offset - 1]
        drawn = torch.multinomial(last.softmax(-1), 1, generator=generator)[:, 0]
        tokens[alive, lengths[alive] + offset] = drawn
        sampled[alive, lengths[alive] + offset] = True
        alive = alive[drawn != EOS]
        if len(alive) == 0:
            break
    return tokens, sampled


def draw_prompts(count, generator):
    """`count` words that pre-training may have seen, lengths even."""
    lengths = torch.randint(3, 7, (count,), generator=generator).tolist()
    return [draw_words(1, length, False, generator) for length in lengths]


def grpo_step(adapter, optimizer, skill, prompts, samples, generator):
    """One step; returns the mean reward of its rollouts."""
    words = draw_prompts(prompts, generator)
    rows = [[BOS, *(word[0] + LOWER_A).tolist(), ARROW] for word in words for _ in range(samples)]
    answers = [[*SKILLS[skill](word)[0].tolist(), EOS] for word in words for _ in range(samples)]
    call = adapter.bind(adapter.merged())
    tokens, sampled = sample(call, rows, generator)
    completions = [row[mask].tolist() for row, mask in zip(tokens, sampled)]
    rewards = torch.tensor([float(got == wanted) for got, wanted in zip(completions, answers)]).view(prompts, samples)
    advantages = (rewards - rewards.mean(1, keepdim=True)) / (rewards.std(1, keepdim=True, correction=0) + 1e-6)
    logprobs = logits_of(call, tokens[:, :-1]).log_softmax(-1).gather(2, tokens[:, 1:, None])[..., 0]
    ratio = (logprobs - logprobs.detach()).exp()
    loss = -(ratio * advantages.view(-1, 1))[sampled[:, 1:]].sum() / len(rows)
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(adapter.parameters(), 1.0)
    optimizer.step()
    return rewards.mean().item()


@torch.no_grad()
def held_out_rate(adapter, packings, skill, words_per_length=64):
    generator = torch.Generator().manual_seed(99)
    call, column, rates = adapter.bind(adapter.merged()), list(SKILLS).index(skill), []
    for length, packing in packings.items():
        words = draw_words(words_per_length, length, True, generator)
        rates.append(packing.answer_probabilities(call, words)[:, column])
    return torch.cat(rates).mean().item()


def run(model, packings, skill, seed, arguments):
    adapter = Adapter(model, arguments.rank, arguments.alpha, seed)
    optimizer = torch.optim.AdamW(adapter.parameters(), lr=arguments.lr, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.0)
    generator = torch.Generator().manual_seed(1000 + seed)
    start, rewards, checkpoints = held_out_rate(adapter, packings, skill), [], {}
    for step in range(arguments.steps):
        decay = 1 - step / arguments.steps if arguments.decay == "linear" else 1.0
        optimizer.param_groups[0]["lr"] = arguments.lr * decay
        rewards.append(grpo_step(adapter, optimizer, skill, arguments.prompts, arguments.samples, generator))
        if (step + 1) % 10 == 0:
            checkpoints[step + 1] = round(held_out_rate(adapter, packings, skill), 3)
    passed = [i + 1 for i in range(2, len(rewards)) if sum(rewards[i - 2 : i + 1]) / 3 >= 0.9]
    return {
        "skill": skill,
        "seed": seed,
        "start": round(start, 3),
        "end": round(held_out_rate(adapter, packings, skill), 3),
        "passedAtStep": passed[0] if passed else None,
        "heldOut": checkpoints,
        "rewards": [round(reward, 2) for reward in rewards],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--base", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent / "seedling")
    parser.add_argument("--skills", default=",".join(SKILLS))
    parser.add_argument("--seeds", default="1")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--alpha", type=float, default=16)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--decay", choices=["none", "linear"], default="linear")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    model = LlamaForCausalLM.from_pretrained(arguments.base, dtype=torch.float32).requires_grad_(False)
    packings = {length: Packing(length) for length in WORDS_PER_LENGTH}
    for skill in arguments.skills.split(","):
        for seed in map(int, arguments.seeds.split(",")):
            print(json.dumps(run(model, packings, skill, seed, arguments)), flush=True)


if __name__ == "__main__":
    main()
