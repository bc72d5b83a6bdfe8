"""Text logs made and read by the libraries that define them, for test_foreign_text_libraries.py.

foreign_text_libraries.py trainer|lightning|mlflow|pandas|json DIR    makes a log in DIR and prints what the library reads in it,
as JSON: {metric: [[step, value], ...]}

Exit status 77: no such package.
"""
import glob
import json
import os
import random
import sys
import warnings

warnings.simplefilter("ignore")
VALUES = [2.75, 0.1, 1e-30, -3.4e38, float("nan"), float("inf"), 0.0, 1 / 3, 1e300, 5e-324, 123456789.123456789]


def trainer(top):
    import torch
    import transformers
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

    transformers.utils.logging.set_verbosity_error()
    torch.manual_seed(1)
    torch.set_num_threads(1)
    rows = [{"input_ids": x, "labels": x} for x in torch.randint(0, 50, (32, 8))]
    model = GPT2LMHeadModel(GPT2Config(n_layer=1, n_head=1, n_embd=8, vocab_size=50, n_positions=8))
    args = TrainingArguments(output_dir=top, per_device_train_batch_size=4, max_steps=12, logging_steps=1, save_steps=4,
                             eval_strategy="steps", eval_steps=3, report_to=[], use_cpu=True, disable_tqdm=True)
    Trainer(model=model, args=args, train_dataset=rows, eval_dataset=rows[:4]).train()
    newest = max(glob.glob(os.path.join(top, "checkpoint-*")), key=lambda p: int(p.rsplit("-", 1)[1]))
    state = transformers.TrainerState.load_from_json(os.path.join(newest, "trainer_state.json"))
    out = {}
    for entry in state.log_history:
        for name, x in entry.items():
            if name != "step":
                out.setdefault(name, []).append([entry["step"], x])
    return out


def lightning(top):
    from lightning.pytorch.loggers import CSVLogger

    logger = CSVLogger(top, name="", version="")
    logger.log_hyperparams({"lr": 0.5, "model": {"layers": 3}, "name": "a"})
    want = {}
    for step in range(40):
        row = {"train_loss": VALUES[step % len(VALUES)], "epoch": step // 10}
        if step % 10 == 9:
            row["val/loss"] = step / 7
        for name, x in row.items():
            want.setdefault(name, []).append([step, x])
        logger.log_metrics(row, step)
    logger.save()
    return want


def mlflow(top):
    os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"  # the file store is in maintenance mode
    import mlflow
    from mlflow.tracking import MlflowClient

    mlflow.set_tracking_uri("file:" + os.path.join(os.path.abspath(top), "store"))
    with mlflow.start_run(run_name="fine-run") as run:
        mlflow.log_params({"lr": 0.001, "model/layers": 4})
        for step in range(50):
            mlflow.log_metric("loss", VALUES[step % len(VALUES)], step=step)
            mlflow.log_metric("val/acc", step / 3, step=step)
    client = MlflowClient()
    return {name: [[m.step, m.value] for m in client.get_metric_history(run.info.run_id, name)] for name in ("loss", "val/acc")}


def pandas(top):
    import pandas

    rng = random.Random(1)
    names = ["loss", "val, loss", 'with "quotes"', "p99 \u00e9"]
    frame = pandas.DataFrame([{"step": 5 * i, **{n: rng.choice(VALUES + [rng.random(), None]) for n in names}} for i in range(300)])
    out = {}
    for name, kw in {"a.csv": {"index": False}, "b.csv": {}, "c.tsv": {"sep": "\t", "index": False},
                     "d.csv": {"sep": ";", "decimal": ",", "index": False}}.items():
        path = os.path.join(top, name)
        frame.to_csv(path, **kw)
        back = pandas.read_csv(path, sep=kw.get("sep", ","), decimal=kw.get("decimal", "."), float_precision="round_trip")
        out[name] = {n: [[int(s), x] for s, x in zip(back["step"], back[n]) if x == x] for n in names}  # NaN is missing in both
    return out


def main():
    what, top = sys.argv[1:]
    print(json.dumps(globals()[what](top)))


try:
    main()
except ImportError as x:
    print(x, file=sys.stderr)
    sys.exit(77)
