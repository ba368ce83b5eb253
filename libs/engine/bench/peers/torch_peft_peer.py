"""The peer that trains: torch + transformers + PEFT on the CPU.

Run as: python torch_peft_peer.py <model folder> <threads> <rank>
Reads one JSON request a line: {"what": "train" | "grpo", "dtype": "float32" | "bfloat16",
"tokens": [[...], ...], "completion": n, "logprob": q, "advantage": a, "learningRate": x}.
Answers {"seconds": s}: forward, backward and AdamW step of that batch. First line out: {"versions": "..."}.

train: cross entropy over every next token. grpo: an importance-sampling loss over the last `completion` tokens of
each row; the head runs on those positions only.
"""

import json
import sys
import time

import peft
import torch
import transformers

MODULES = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def make(folder, dtype, rank, learning_rate):
    base = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=dtype, attn_implementation="sdpa"
    )
    base.config.use_cache = False
    config = peft.LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=MODULES, task_type="CAUSAL_LM")
    model = peft.get_peft_model(base, config)
    model.train()
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=learning_rate, betas=(0.9, 0.95), weight_decay=0.0, fused=True)
    return model, parameters, optimizer


def token_logprobs(model, tokens, completion):
    """Log-probs of the last `completion` tokens of each row."""
    logits = model(input_ids=tokens, logits_to_keep=completion + 1).logits[:, :-1].float()
    targets = tokens[:, -completion:]
    return -torch.nn.functional.cross_entropy(
        logits.reshape(-1, logits.shape[-1]), targets.reshape(-1), reduction="none"
    )


def main():
    folder, threads, rank = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    versions = f"torch {torch.__version__}, transformers {transformers.__version__}, peft {peft.__version__}"
    print(json.dumps({"versions": versions}), flush=True)
    models = {}
    for line in sys.stdin:
        request = json.loads(line)
        name = request["dtype"]
        if name not in models:
            models[name] = make(folder, getattr(torch, name), rank, request["learningRate"])
        model, parameters, optimizer = models[name]
        tokens = torch.tensor(request["tokens"], dtype=torch.long)
        start = time.perf_counter()
        if request["what"] == "train":
            loss = -token_logprobs(model, tokens, tokens.shape[1] - 1).sum()
        else:
            logprobs = token_logprobs(model, tokens, request["completion"])
            loss = -(torch.exp(logprobs - request["logprob"]) * request["advantage"]).sum()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        seconds = time.perf_counter() - start
        print(json.dumps({"seconds": seconds, "loss": float(loss.detach())}), flush=True)


main()
