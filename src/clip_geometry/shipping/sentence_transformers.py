"""sentence-transformers: a copy of a text encoder with Dense and Normalize modules at its end that repair its rows."""

import json
import shutil
from pathlib import Path
from typing import Any

import torch

from clip_geometry.encoders import load_encoder, resolve_encoder
from clip_geometry.encoders.sentence import find
from clip_geometry.reading import read_json
from clip_geometry.registry import InputError, library, shown
from clip_geometry.shipping.base import Shipment, Target, targets
from clip_geometry.shipping.rows import Step, item_map, query_map

CONFIG = "config_sentence_transformers.json"


class SentenceEncoder(Target):
    """Copy the model and append modules; where queries and items have different rows, a Router of both.

    The similarity function becomes the inner product, which for rows of unit length is the cosine.
    """

    summary = "a text encoder with repaired rows"
    takes = "model"

    def write(self, shipment: Shipment, folder: Path) -> dict[str, str]:
        modules = "sentence_transformers.sentence_transformer.modules"
        modules_of = library(modules, "sentence-transformers", "a sentence-transformers model")
        repair, modality, source = shipment.inner_product, shipment.modality, shipment.model
        if source is None:
            raise InputError("no model was given; expected the folder of a sentence-transformers model")
        maps = query_map(repair, modality), item_map(repair, modality)
        config: Any = resolve_encoder(f"sentence:{source}")
        encoder = load_encoder(config, "cpu")
        if (d := encoder.describe()["dim"]["text"]) != maps[0].d_in:
            raise InputError(
                f"{shown(source)} gives rows of dimension {d}, but {repair.name} was fitted for {modality} rows of "
                f"dimension {maps[0].d_in}"
            )
        model = find(config)[0]
        query, item = (_modules(modules_of, each.chain()) for each in maps)
        shutil.copytree(model, folder, dirs_exist_ok=True)
        modules = read_json(folder / "modules.json", "a list of modules", list[dict[str, Any]])
        tensors = [[x for module in each for x in module.state_dict().values()] for each in (query, item)]
        alike = [type(module) for module in query] == [type(module) for module in item]
        same = alike and all(torch.equal(a, b) for a, b in zip(*tensors, strict=True))
        appended = query if same else [modules_of.Router.for_query_document(query, item, default_route="query")]
        for module in appended:
            kind, place = type(module).__name__, f"{len(modules)}_{type(module).__name__}"
            (folder / place).mkdir()
            module.save(str(folder / place))
            entry = {"idx": len(modules), "name": str(len(modules)), "path": place}
            modules.append(entry | {"type": f"sentence_transformers.models.{kind}"})
        (folder / "modules.json").write_text(json.dumps(modules, indent=2), encoding="utf-8")
        path = folder / CONFIG
        settings = read_json(path, "the config of a model", dict[str, Any]) if path.is_file() else {}
        path.write_text(json.dumps(settings | {"similarity_fn_name": "dot"}, indent=2), encoding="utf-8")
        says = "encode gives repaired rows" if same else "encode_query and encode_document give repaired rows"
        return {".": f"SentenceTransformer({modality}), {maps[0].d_in} → {maps[0].d_out}: {says}"}


def _modules(modules_of: Any, steps: list[Step]) -> list[Any]:
    return [
        modules_of.Normalize()
        if step == "normalize"
        else modules_of.Dense(
            *step.W.shape,
            activation_function=torch.nn.Identity(),
            init_weight=torch.from_numpy(step.W.T.copy()).float(),
            init_bias=torch.from_numpy(step.b).float(),
        )
        for step in steps
    ]


targets.add("sentence-transformers", SentenceEncoder())
