# SPDX-License-Identifier: Apache-2.0
"""A script of the shape of Hugging Face's run_clm.py, to which tests apply the diff of docs/python-from.md."""
import torch
import transformers
from transformers import GPT2Config, GPT2LMHeadModel, HfArgumentParser, Trainer, TrainingArguments, set_seed


def main():
    (training_args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
    torch.set_num_threads(1)
    transformers.utils.logging.set_verbosity_error()
    set_seed(training_args.seed)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=13, n_positions=16, n_embd=16, n_layer=1, n_head=2))
    text = torch.arange(2000) * 7 % 31 % 13
    train_dataset = [{"input_ids": each, "labels": each} for each in text[:1600].view(100, 16)]
    trainer = Trainer(
        model=model,
        args=training_args,
        train_dataset=train_dataset if training_args.do_train else None,
    )
    if training_args.do_train:
        trainer.train(resume_from_checkpoint=None)


if __name__ == "__main__":
    main()
