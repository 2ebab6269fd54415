"""Recognition of the names that frameworks give to the values of an evaluation."""

import pytest

from trainvitals.training.frameworks import sort_validation


@pytest.mark.parametrize(
    "name",
    ["val_loss", "valid_loss", "validation/loss", "loss/val", "val.loss", "loss", "eval_loss",
     "val_loss_epoch", "val_loss/dataloader_idx_0", "Val Loss"],
)  # fmt: skip
def test_the_loss_is_found_under_its_usual_names(name):
    """The validation loss is found whatever the separators, the case and Lightning's suffixes."""
    assert sort_validation({name: 0.5}) == (0.5, None, {})


@pytest.mark.parametrize("name", ["val_acc", "val_accuracy", "valid/acc", "accuracy"])
def test_the_accuracy_is_found_under_its_usual_names(name):
    """The validation accuracy is found under each of its usual names."""
    assert sort_validation({name: 0.75}) == (None, 0.75, {})


def test_all_others_keep_their_names():
    """Other numbers keep their names, and epochs, texts and values of single steps are left out."""
    values = {
        "val_iou": 0.09,
        "val_dice_step": 0.1,
        "val_dice_epoch": 0.16,
        "val_loss_ratio": 2,
        "epoch": 3,
        "note": "text",
        "nested": {"a": 1.0},
    }
    assert sort_validation(values) == (
        None,
        None,
        {"val_iou": 0.09, "val_dice": 0.16, "val_loss_ratio": 2.0},
    )
