"""Pre-trains `seedling`, the small base model of the demo, and writes its Hugging Face folder.

    python models/pretrain_seedling.py                      # rewrites models/seedling/, about ten minutes on two cores

The model reads a word of 3 to 6 lower-case letters and `>` and answers with one of eight transformations of the word,
drawn evenly and not named in the prompt. So it can do all eight, does each about one time in eight, and an adapter has
to teach it only which one is wanted: the reward begins near 1/8 and can reach 1.

How it is trained:
  - One example is a word with all eight answers, packed into one row: prompt, then eight branches that see the prompt
    and themselves, at the positions they would have alone. The last prompt token is trained on all eight first letters
    at once. That is the same loss as eight separate sequences, without the noise of drawing a transformation and with
    a third of the tokens.
  - The loss stands on the answers and their end of sequence; the prompt carries none.
  - Words are half random letters, half consonant-vowel patterns. A word whose letters (a = 1) sum to a multiple of 11
    is held out: it never occurs here, and every figure in the log is measured on such words.
  - Muon for the matrices of the layers, AdamW for the embedding (which is also the head) and the norms.

Deterministic for one version of torch on one kind of CPU: fixed seed, fixed number of threads. Needs torch 2.9 or later,
transformers 5, tokenizers, safetensors.
"""

import argparse
import hashlib
import json
import math
import pathlib
import string
import time

import torch
from tokenizers import AddedToken, Tokenizer, decoders, processors
from tokenizers import models as tokenizer_models
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

PAD, BOS, EOS, ARROW, LOWER_A, UPPER_A = 0, 1, 2, 3, 4, 30
VOCABULARY = ["<pad>", "<bos>", "<eos>", ">", *string.ascii_lowercase, *string.ascii_uppercase]
VOWELS = torch.tensor([string.ascii_lowercase.index(letter) for letter in "aeiou"])
CONSONANTS = torch.tensor([i for i in range(26) if i not in VOWELS.tolist()])
HELD_OUT_MODULUS = 11
WORDS_PER_LENGTH = {3: 8, 4: 16, 5: 24, 6: 32}  # long words are the harder ones

# Letters 0..25 of a word [words, n] -> token ids of the answer [words, n or 2n].
SKILLS = {
    "copy": lambda word: word + LOWER_A,
    "reverse": lambda word: word.flip(1) + LOWER_A,
    "upper": lambda word: word + UPPER_A,
    "sort": lambda word: word.sort(dim=1).values + LOWER_A,
    "rotate": lambda word: word.roll(-1, dims=1) + LOWER_A,
    "next": lambda word: (word + 1) % 26 + LOWER_A,
    "double": lambda word: word.repeat_interleave(2, dim=1) + LOWER_A,
    "title": lambda word: torch.cat([word[:, :1] + UPPER_A, word[:, 1:] + LOWER_A], dim=1),
}


def is_held_out(words):
    """[words, n] -> [words] bool."""
    return (words + 1).sum(dim=1) % HELD_OUT_MODULUS == 0


def draw_words(count, length, held_out, generator):
    """`count` words [count, length] of letters 0..25, all held out or none."""
    pool = max(16, count * (4 * HELD_OUT_MODULUS if held_out else 2))
    random = torch.randint(26, (pool, length), generator=generator)
    vowels = VOWELS[torch.randint(len(VOWELS), (pool, length), generator=generator)]
    consonants = CONSONANTS[torch.randint(len(CONSONANTS), (pool, length), generator=generator)]
    starts_with_vowel = torch.randint(2, (pool, 1), generator=generator)
    at_vowel = (torch.arange(length) + starts_with_vowel) % 2 == 1
    pronounceable = torch.where(at_vowel, vowels, consonants)
    words = torch.where(torch.rand(pool, 1, generator=generator) < 0.5, random, pronounceable)
    words = words[is_held_out(words) == held_out]
    assert len(words) >= count
    return words[:count]


class Packing:
    """How a word of `length` letters and its eight answers lie in one row.

    Row: bos, word, '>', then per skill its answer. Every answer token has a target (the next one, or eos); '>' has
    eight. `mask` is additive [1, 1, rows, rows]; `positions` is [1, rows].
    """

    def __init__(self, length):
        self.prompt = length + 2
        sizes = [2 * length if skill == "double" else length for skill in SKILLS]
        branch = torch.cat([torch.full((self.prompt,), -1)] + [torch.full((n,), i) for i, n in enumerate(sizes)])
        self.positions = torch.cat([torch.arange(self.prompt)] + [self.prompt + torch.arange(n) for n in sizes])[None]
        order = torch.arange(len(branch))
        visible = (branch[None, :] == -1) | (branch[None, :] == branch[:, None])
        visible &= order[None, :] <= order[:, None]
        self.mask = torch.zeros(1, 1, len(branch), len(branch)).masked_fill(~visible, -math.inf)
        self.sizes = sizes

    def pack(self, words):
        """[words, n] -> tokens [words, rows], first targets [words, 8], later targets [words, rows - prompt]."""
        count = len(words)
        edge = torch.ones(count, 1, dtype=torch.long)
        answers = [skill(words) for skill in SKILLS.values()]
        tokens = torch.cat([edge * BOS, words + LOWER_A, edge * ARROW, *answers], dim=1)
        first = torch.stack([answer[:, 0] for answer in answers], dim=1)
        later = torch.cat([torch.cat([answer[:, 1:], edge * EOS], dim=1) for answer in answers], dim=1)
        return tokens, first, later

    def target_logprobs(self, model, words):
        """Log-probs of the first answer tokens [words, 8] and of all later ones [words, rows - prompt]."""
        tokens, first, later = self.pack(words)
        output = model(
            input_ids=tokens,
            attention_mask=self.mask,
            position_ids=self.positions.expand(len(words), -1),
            use_cache=False,
            logits_to_keep=tokens.shape[1] - self.prompt + 1,
        )
        logprobs = output.logits.log_softmax(-1)
        return logprobs[:, 0].gather(1, first), logprobs[:, 1:].gather(2, later[..., None])[..., 0]

    def answer_probabilities(self, model, words):
        """Probability of each of the eight answers as a whole, eos included, at temperature 1: [words, 8]."""
        first, later = self.target_logprobs(model, words)
        sums = [part.sum(dim=1) for part in later.split(self.sizes, dim=1)]
        return (first + torch.stack(sums, dim=1)).double().exp()


@torch.no_grad()
def evaluate(model, packings, words_per_length, seed):
    """Rates at temperature 1 on held-out words, computed rather than sampled.

    Per skill the mean probability that the answer is exactly right for it (two skills may share an answer), and
    `none`: the mean probability of an answer that is right for no skill.
    """
    generator = torch.Generator().manual_seed(seed)
    matches, none = [], []
    for length, packing in packings.items():
        words = draw_words(words_per_length, length, True, generator)
        probabilities = packing.answer_probabilities(model, words)
        answers = [skill(words) for skill in SKILLS.values()]
        same = torch.stack([torch.stack([equal_rows(a, b) for b in answers], dim=1) for a in answers], dim=1)
        matches.append(probabilities)
        earlier_twin = (same & torch.ones(8, 8, dtype=torch.bool).tril(-1)).any(dim=2)
        none.append(1 - probabilities.masked_fill(earlier_twin, 0).sum(dim=1))
    rates = torch.cat(matches).mean(dim=0).tolist()
    result = {skill: round(rate, 4) for skill, rate in zip(SKILLS, rates)}
    return {**result, "none": round(torch.cat(none).mean().item(), 4)}


def equal_rows(a, b):
    return (a == b).all(dim=1) if a.shape == b.shape else torch.zeros(len(a), dtype=torch.bool)


def make_model():
    """rope_theta is the value that readers of older configuration files assume, so all of them agree."""
    config = LlamaConfig(
        vocab_size=len(VOCABULARY),
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=128,
        rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        tie_word_embeddings=True,
        initializer_range=0.05,
        pad_token_id=PAD,
        bos_token_id=BOS,
        eos_token_id=EOS,
    )
    config._attn_implementation = "sdpa"
    return LlamaForCausalLM(config)


def make_tokenizer():
    """One id per letter; `encode` puts <bos> in front; a character outside the vocabulary becomes <pad>."""
    vocabulary = {token: index for index, token in enumerate(VOCABULARY)}
    tokenizer = Tokenizer(tokenizer_models.BPE(vocab=vocabulary, merges=[], unk_token="<pad>"))
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in VOCABULARY[:3]])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<bos> $A", pair="<bos> $A $B", special_tokens=[("<bos>", BOS)]
    )
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        bos_token="<bos>",
        eos_token="<eos>",
        model_max_length=128,
        clean_up_tokenization_spaces=False,
    )


def learning_rate_factor(step, steps, warmup=100):
    """Linear warm-up, then a cosine to zero."""
    if step < warmup:
        return (step + 1) / warmup
    return 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, steps - warmup)))


def train(arguments, log):
    torch.manual_seed(arguments.seed)
    generator = torch.Generator().manual_seed(arguments.seed)
    model = make_model()
    packings = {length: Packing(length) for length in WORDS_PER_LENGTH}
    matrices = [p for name, p in model.named_parameters() if p.ndim == 2 and "embed_tokens" not in name]
    others = [p for name, p in model.named_parameters() if p.ndim == 1 or "embed_tokens" in name]
    optimizers = [
        torch.optim.Muon(matrices, lr=arguments.matrix_lr, weight_decay=0.01, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(others, lr=arguments.other_lr, betas=(0.9, 0.98), weight_decay=0.0),
    ]
    started = time.monotonic()
    schedule = [
        torch.optim.lr_scheduler.LambdaLR(o, lambda step: learning_rate_factor(step, arguments.steps))
        for o in optimizers
    ]
    running = 0.0
    for step in range(1, arguments.steps + 1):
        draws = {n: draw_words(count, n, False, generator) for n, count in WORDS_PER_LENGTH.items()}
        targets = sum(len(words) * (8 + sum(packings[n].sizes)) for n, words in draws.items())
        for length, words in draws.items():
            first, later = packings[length].target_logprobs(model, words)
            loss = -(first.sum() + later.sum()) / targets
            loss.backward()
            running += loss.item()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer, scheduler in zip(optimizers, schedule):
            optimizer.step()
            scheduler.step()
        model.zero_grad(set_to_none=True)
        if step % 100 == 0 or step == arguments.steps:
            interval = step % 100 or 100
            line = {"step": step, "loss": round(running / interval, 5)}
            running = 0.0
            if step % 500 == 0 or step == arguments.steps:
                line["heldOut"] = evaluate(model, packings, 64, seed=7)
            line["seconds"] = round(time.monotonic() - started)
            log(line)
    return model, packings


def save(model, folder):
    model.save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    # transformers 5 names a class that transformers 4 does not have; both know this one.
    path = folder / "tokenizer_config.json"
    config = json.loads(path.read_text())
    config["tokenizer_class"] = "PreTrainedTokenizerFast"
    path.write_text(json.dumps(config, indent=2) + "\n")
    # The longest answer is 12 letters and <eos>.
    GenerationConfig(
        bos_token_id=BOS, eos_token_id=EOS, pad_token_id=PAD, do_sample=True, top_k=0, max_new_tokens=13
    ).save_pretrained(folder)


def write_digest(folder):
    """One line per file, in the format of sha256sum."""
    lines = []
    for file in sorted(folder.iterdir()):
        if file.name != "DIGEST":
            file.chmod(0o644)  # safetensors writes its files for the owner alone
            lines.append(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n")
    (folder / "DIGEST").write_text("".join(lines))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent / "seedling")
    parser.add_argument("--steps", type=int, default=2500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--matrix-lr", type=float, default=4e-3)
    parser.add_argument("--other-lr", type=float, default=3e-3)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.use_deterministic_algorithms(True)

    arguments.out.mkdir(parents=True, exist_ok=True)
    with (arguments.out / "training-log.jsonl").open("w") as log_file:

        def log(line):
            print(json.dumps(line), flush=True)
            log_file.write(json.dumps(line) + "\n")
            log_file.flush()

        model, packings = train(arguments, log)
        save(model.to(torch.bfloat16), arguments.out)
        stored = LlamaForCausalLM.from_pretrained(arguments.out, dtype=torch.float32)
        log({"stored": "bfloat16", "heldOut": evaluate(stored, packings, 512, seed=8)})
    write_digest(arguments.out)


if __name__ == "__main__":
    main()
