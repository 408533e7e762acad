"""Run under ``accelerate launch`` by test_distillation: label, distil, and write what came out."""

import gc
import json
import os
import sys
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
folder, settings = Path(sys.argv[1]), json.loads(sys.argv[2])
folder.mkdir(parents=True, exist_ok=True)
os.environ["HF_DATASETS_CACHE"] = str(folder / "cache")

import torch
from accelerate import PartialState
from accelerate.utils import gather_object

from drw_hf import DistillationTrainer, label_with_teacher
from drw_hf.detection import probe_suspect
from small_models import make_tokenizer, make_victim
from test_distillation import arguments, losses_of, make_rows, make_student

TASK = "token-classification"
state = PartialState(cpu=True)


def main():
    tokenizer, rows = make_tokenizer(), make_rows("token-classification", 32)
    result = {"processes": state.num_processes}

    victim = make_victim(TASK, label_kind="hard")
    asked = [0]
    victim.register_forward_hook(
        lambda module, args, kwargs, output: asked.__setitem__(0, asked[0] + len(kwargs["input_ids"])),
        with_kwargs=True,
    )
    labelled = label_with_teacher(victim, rows, tokenizer, batch_size=4, progress=False)
    result["asked"] = gather_object(asked)
    result["labels"], result["first_probs"] = labelled["teacher_labels"][:], labelled["teacher_probs"][0]

    probe = probe_suspect(
        victim.get_base_model(), rows["tokens"][:], key=victim.key, tokenizer=tokenizer, batch_size=4, progress=False
    )
    result["probe"] = probe.suspect.tolist()

    for name in ("cached", "requery"):
        student = make_student(TASK)
        trainer = DistillationTrainer(
            student,
            arguments(
                folder / name,
                per_device_train_batch_size=settings["batch"],
                num_train_epochs=2,
                optim="sgd",
                learning_rate=0.1,
                logging_steps=1,
                requery=name == "requery",
            ),
            make_victim(TASK),
            rows,
            processing_class=tokenizer,
        )
        trainer.train()
        weights = torch.cat([weight.flatten() for weight in student.state_dict().values()])[::97]
        result[name] = {"losses": losses_of(trainer), "weights": weights.tolist()}

    if state.is_main_process:
        (folder / "result.json").write_text(json.dumps(result))


main()
# As every script that runs under `accelerate launch` should end; docs/howto/many-gpus.md says why.
gc.collect()
state.wait_for_everyone()
state.destroy_process_group()
left = [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]
assert not [name for name in left if "gloo" in name], f"threads of the process group are still running: {left}"
