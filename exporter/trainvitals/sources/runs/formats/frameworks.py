"""The log formats of Keras, TensorFlow, and libraries for boosting and reinforcement learning."""

from __future__ import annotations

from trainvitals.sources.runs.formats.entry import Format, line

_COUNT = r"<epoch_step>/(?:<epoch_steps>|Unknown)"
_STEP_TIME = r"(?:<step_milliseconds>ms|<step_microseconds>us|<step_seconds>s)/step"

KERAS = Format(
    name="Keras",
    lines=(
        line(rf"^\s{{0,12}}{_COUNT} - [\d.]{{1,12}}s - (?P<pairs>[a-z].*) - [\d.]{{1,12}}s/epoch - {_STEP_TIME}", "s/step", "s/epoch"),
        line(rf"^\s{{0,12}}{_COUNT} [^/]{{0,200}}?\b{_STEP_TIME}<pairs>", "s/step"),
        line(rf"^\s{{0,12}}{_COUNT} \[[=>.]{{1,80}}\] - ETA: [\d:s ]{{1,20}} - <pairs>", "] - ETA: ", "oss"),
        line(r"^\s{0,12}\d{1,12}/\d{1,12} [^/]{0,200}?s/sample(?: - <pairs>)?", "s/sample", "oss"),
        line(rf"^\s{{0,12}}{_COUNT} - [\d.]{{1,12}}s - (?P<pairs>[a-z].*)", "/", "s - ", "loss: "),
        line(
            r"(?:LearningRateScheduler setting|ReduceLROnPlateau reducing) learning rate to "
            r"(?P<learning_rate>\d[\d.e-]{0,30}\d)",
            "ing learning rate to ",
        ),
    ),
    first_epoch=1,
    example="""\
Epoch 2: LearningRateScheduler setting learning rate to 0.00025.
Epoch 2/3
 150/1875 ━━━━━━━━━━━━━━━━━━━━ 1s 750us/step - accuracy: 0.8125 - loss: 0.6250
1875/1875 ━━━━━━━━━━━━━━━━━━━━ 2s 800us/step - accuracy: 0.8750 - loss: 0.5000 - val_accuracy: 0.8906 - val_loss: 0.4375
""",
    reads={
        "step": 3750, "epoch": 2, "total_epochs": 3, "epoch_step": 1875, "epoch_steps": 1875,
        "step_seconds": 0.0008, "learning_rate": 0.00025, "loss": 0.5, "accuracy": 0.875, "validation_loss": 0.4375,
        "validation_accuracy": 0.8906,
    },
)  # fmt: skip

TENSORFLOW = Format(
    name="TensorFlow Estimator",
    lines=(
        line(r"\bloss = <loss>, step = <step>", "loss = ", ", step = "),
        line(r"\bglobal_step/sec: <steps_per_second>", "global_step/sec: "),
        line(
            r"Saving dict for global step <step>: <pairs>",
            "Saving dict for global step ",
            split="validation",
        ),
        line(r"global step <step>: loss = <loss> \(<step_seconds> sec/step\)", "global step "),
    ),
    example="""\
INFO:tensorflow:global_step/sec: 4
INFO:tensorflow:loss = 0.625, step = 300 (25.000 sec)
INFO:tensorflow:Saving dict for global step 300: accuracy = 0.875, global_step = 300, loss = 0.5
""",
    reads={
        "step": 300, "loss": 0.625, "step_seconds": 0.25,
        "validation_loss": 0.5, "validation_accuracy": 0.875,
    },
)  # fmt: skip

OBJECT_DETECTION = Format(
    name="TensorFlow Object Detection",
    lines=(
        line(
            r"\bStep <step> per-step time <step_seconds>s(?: loss=<loss>)?",
            "per-step time ",
            marks="section",
            split="train",
        ),
        line(
            r"^(?:.{0,60}\{| *)'(?P<name>Loss/[\w/]{1,60}|learning_rate)': <value>[,}]",
            "': ",
            in_section=True,
        ),
    ),
    fields={"Loss/total_loss": "loss"},
    example="""\
INFO:tensorflow:Step 200 per-step time 0.250s
INFO:tensorflow:{'Loss/classification_loss': 0.25,
 'Loss/total_loss': 0.75,
 'learning_rate': 0.0125}
""",
    reads={"step": 200, "loss": 0.75, "learning_rate": 0.0125, "step_seconds": 0.25},
)

EASYLM = Format(
    name="EasyLM",
    lines=(
        line(
            r"^\{'accuracy': <accuracy>,\s*$", "{'accuracy': ", marks="section", split="train"
        ),
        line(
            r"^ '(?P<name>loss|gradient_norm|learning_rate|param_norm|step|eval_loss|eval_accuracy)': "
            r"<value>[,}]",
            " '",
            "': ",
            in_section=True,
        ),
    ),
    example="""\
{'accuracy': 0.5,
 'gradient_norm': 1.25,
 'learning_rate': 0.0003,
 'loss': 2.5,
 'param_norm': 512.0,
 'step': 100}
""",
    reads={
        "step": 100, "accuracy": 0.5, "gradient_norm": 1.25, "learning_rate": 0.0003, "loss": 2.5
    },
)  # fmt: skip


def _name_losses(
    sets: tuple[str, ...], between: str, metrics: tuple[str, ...], word: str
) -> dict[str, str]:
    return {f"{name}{between}{metric}": word for name in sets for metric in metrics}


_LOSSES = (
    *("logloss", "mlogloss", "binary_logloss", "multi_logloss", "cross_entropy"),
    *("rmse", "rmsle", "mae", "mape", "l1", "l2", "huber", "quantile", "poisson", "tweedie"),
)

XGBOOST = Format(
    name="XGBoost",
    lines=(line(r"^(?:\[[\d:]{8}\] )?\[<step>\]\s+(?P<pairs>[\w.-]{3,60}:.*)", "]\t", ":"),),
    fields={
        **_name_losses(("train", "validation_0"), "-", _LOSSES, "loss"),
        **_name_losses(("eval", "valid", "val", "test", "validation_1"), "-", _LOSSES, "val_loss"),
    },
    example="[20]\ttrain-logloss:0.50000\teval-logloss:0.62500",
    reads={"step": 20, "loss": 0.5, "validation_loss": 0.625},
)

LIGHTGBM = Format(
    name="LightGBM",
    lines=(line(r"^\[<step>\]\s+(?P<pairs>\w+'s .*)", "]\t", "'s "),),
    fields={
        **_name_losses(("training", "train"), "'s ", _LOSSES, "loss"),
        **_name_losses(("valid_0", "valid_1", "valid", "eval", "test"), "'s ", _LOSSES, "val_loss"),
    },
    example="[20]\ttraining's binary_logloss: 0.5\tvalid_1's binary_logloss: 0.625",
    reads={"step": 20, "loss": 0.5, "validation_loss": 0.625},
)

CATBOOST = Format(
    name="CatBoost",
    lines=(line(r"^<step>:\s+(?P<pairs>learn: .*)", "learn: "),),
    fields={"learn": "loss", "test": "val_loss", "best": "", "total": "", "remaining": ""},
    example="20:\tlearn: 0.5000000\ttest: 0.6250000\tbest: 0.6000000 (18)\ttotal: 1.25s\tremaining: 48.8s",
    reads={"step": 20, "loss": 0.5, "validation_loss": 0.625},
)

STABLE_BASELINES = Format(
    name="Stable-Baselines3",
    lines=(
        line(
            r"^\| +(?P<name>total_timesteps|loss|learning_rate|fps|iterations|n_updates|ep_rew_mean"
            r"|ep_len_mean|mean_reward|success_rate|entropy_loss|policy_gradient_loss|value_loss"
            r"|approx_kl|clip_fraction|explained_variance|actor_loss|critic_loss|ent_coef|std)"
            r" +\| +<value> *\|",
            "|    ",
            " |",
        ),
    ),
    fields={"total_timesteps": "step", "fps": "steps_per_second", "iterations": ""},
    example="""\
| rollout/                |             |
|    ep_rew_mean          | 22.5        |
| time/                   |             |
|    fps                  | 1000        |
|    iterations           | 2           |
|    total_timesteps      | 4096        |
| train/                  |             |
|    learning_rate        | 0.0003      |
|    loss                 | 5.25        |
""",
    reads={"step": 4096, "loss": 5.25, "learning_rate": 0.0003, "step_seconds": 0.001},
)

RLLIB = Format(
    name="RLlib",
    lines=(
        line(
            r"^ *(?P<name>episode_\w{1,8}_mean): <value>\s*$",
            "  ",
            "_mean: ",
        ),
        line(
            r"^\| \w[^|]{2,80}\| RUNNING +\|[^|]{1,40}\| +\d{1,12} \| +[\d.]{1,20} \| +<step> \|",
            "RUNNING",
            "| ",
        ),
        line(r"^ *(?:timesteps_total|num_env_steps_sampled_lifetime): <step>\s*$", "  ", "steps_"),
    ),
    example="""\
Result for PPO_CartPole-v1_1a2b3_00000:
  episode_reward_mean: 22.5
  timesteps_total: 40000
  training_iteration: 10
""",
    reads={"step": 40000},
)

CLU = Format(
    name="CLU (Flax examples)",
    lines=(line(r"logging_writer\.py:\d{1,6}\] \[<step>\] <pairs>", "oss", "logging_writer.py:"),),
    example="I0302 10:11:12.130201 140201 logging_writer.py:48] [200] accuracy=0.75, "
    "learning_rate=0.001, loss=0.5, steps_per_second=4.0",
    reads={
        "step": 200,
        "loss": 0.5,
        "accuracy": 0.75,
        "learning_rate": 0.001,
        "step_seconds": 0.25,
    },
)

CLEANRL = Format(
    name="CleanRL",
    lines=(
        line(
            r"^global_step=<step>, episodic_return=\[? ?<episodic_return>",
            "global_step=",
            "return=",
        ),
        line(r"^SPS: <steps_per_second>\s*$", "SPS: "),
    ),
    example="global_step=4096, episodic_return=[22.]\nSPS: 1000\n",
    reads={"step": 4096, "step_seconds": 0.001},
)

TINYGRAD = Format(
    name="tinygrad",
    lines=(
        line(
            r"^\s*<step> +<step_milliseconds> ms run, [^|]{0,160}?, +<loss> loss, +<learning_rate> LR",
            " ms run, ",
            " loss, ",
        ),
        line(
            r"(?P<pairs>loss: [^|%]{1,80})(?:%[^|%]{0,40})?: +\d{1,3}%\|[^|]*\| *<epoch_step>/<epoch_steps>",
            "loss: ",
            "%|",
            repeats=True,
        ),
    ),
    example="   20  250.00 ms run,   10.50 ms python,  239.50 ms GPU,   6.25 loss, 0.000500 LR, 5.25 GB used",
    reads={"step": 20, "step_seconds": 0.25, "loss": 6.25, "learning_rate": 0.0005},
)
