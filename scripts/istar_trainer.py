"""I-STAR in transformers' Trainer (Rudman & Eickhoff 2024): task loss plus λ (1 − IsoScore*) of all layers.

python scripts/istar_trainer.py [--lambdas -0.3 0 1]

`IStarTrainer` accepts any model that returns hidden states, and batches with an attention mask. As an example, a small
untrained BERT learns whether a sequence of random tokens contains token 2. Trainer needs `pip install accelerate`.
"""

import argparse
import tempfile

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments

import clip_geometry as cg


class IStarTrainer(Trainer):
    """Adds the penalty to the training loss. sample: number of training examples behind C_0, drawn at every refresh."""

    def __init__(self, *args, lambda_: float, zeta: float = 0.2, sample: int = 5000, **options):
        super().__init__(*args, **options)
        self.istar = cg.training.IStar(lambda_, zeta)
        self.sample = sample
        self.add_callback(RefreshC0(self))

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        if not model.training:
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        # Trainer divides the loss by the number of accumulated batches, unless it passes num_items_in_batch: it then
        # leaves that to the model, and classifiers ignore the number. Both terms are divided here, the task's by items
        share = penalty_share = 1.0
        if num_items_in_batch is not None:
            share = self._get_num_items_in_batch([inputs], self.args.device) / num_items_in_batch
            penalty_share = 1 / self.current_gradient_accumulation_steps
        inputs = {**inputs, "output_hidden_states": True}
        loss, outputs = super().compute_loss(model, inputs, True)  # the mean over this batch
        penalty = self.istar(list(outputs.hidden_states[1:]), inputs["attention_mask"])
        loss = share * loss + penalty_share * penalty
        return (loss, outputs) if return_outputs else loss

    def states(self, model, examples):
        """Yields (states of all layers, mask) of each batch, without dropout."""
        model.eval()  # Trainer calls model.train() before every step
        for batch in map(self._prepare_inputs, self.get_test_dataloader(examples)):
            yield list(model(**batch, output_hidden_states=True).hidden_states[1:]), batch["attention_mask"]


class RefreshC0(TrainerCallback):
    """Sets C_0 at the beginning of every epoch, without using up random numbers of the training."""

    def __init__(self, trainer: IStarTrainer):
        self.trainer = trainer

    def on_epoch_begin(self, args, state, control, model, **rest):
        data = self.trainer.train_dataset
        generator = torch.Generator().manual_seed(args.seed + int(state.epoch))
        drawn = torch.randperm(len(data), generator=generator)[: self.trainer.sample].tolist()
        with torch.random.fork_rng(), torch.no_grad():
            self.trainer.istar.refresh(self.trainer.states(model, torch.utils.data.Subset(data, drawn)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lambdas", type=float, nargs="+", default=[-0.3, 0, 1], help="lambda of I-STAR")
    options = parser.parse_args()
    ids = torch.randint(2, 12, (512, 8), generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(ids)
    labels = (ids == 2).any(1).long()
    examples = [{"input_ids": i, "attention_mask": m, "labels": y} for i, m, y in zip(ids, mask, labels, strict=True)]
    size = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    quiet = {"report_to": "none", "save_strategy": "no", "logging_strategy": "no", "disable_tqdm": True}
    for lambda_ in options.lambdas:
        torch.manual_seed(0)
        model = BertForSequenceClassification(BertConfig(vocab_size=12, **size))
        with tempfile.TemporaryDirectory() as folder:
            arguments = TrainingArguments(folder, learning_rate=3e-3, use_cpu=True, **quiet)  # three epochs
            IStarTrainer(model, arguments, train_dataset=examples, lambda_=lambda_).train()
        with torch.no_grad():
            outputs = model.eval()(ids, mask, output_hidden_states=True)
        score = cg.geometry.isoscore(torch.cat(outputs.hidden_states[1:]).flatten(0, 1))
        right = (outputs.logits.argmax(1) == labels).float().mean()
        print(f"λ = {lambda_:g}: IsoScore of all layers {score:.4f}, correctly classified {right:.1%}")


if __name__ == "__main__":
    main()
