"""The blocks of docs/howto/databases.md run on databases that each client fills, and find what the repair ranks first.

PostgreSQL with pgvector comes from the package pgserver; Qdrant and Milvus run in this process. For Elasticsearch there
is no server to install: its client talks to `StandIn`, which answers the calls of the page.
"""

import contextlib
import json
import re
import shlex
import shutil
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import clip_geometry as cg
from clip_geometry.cli import main
from clip_geometry.repairs import InnerProduct

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "databases.md"
NAMES = ("pgvector", "Qdrant", "Milvus", "Elasticsearch")
N, D = 60, 8
RNG = np.random.default_rng(0)
ITEMS = RNG.normal(size=(N, D))
ROWS = {"image": ITEMS + 0.3 * RNG.normal(size=(N, D)) + 1, "text": ITEMS + 0.3 * RNG.normal(size=(N, D)) - 1}
TABLE = pd.DataFrame(
    {
        "id": range(2 * N),
        "item": [f"item {k}" for k in (*range(N), *range(N))],
        "modality": np.repeat(["image", "text"], N),
        "embedding": list(np.concatenate([*ROWS.values()]).astype(np.float32)),
    }
)


def block(step: int, name: str = "", language: str = "python") -> str:
    """The block of a step, or the one of its section about a database."""
    if not PAGE.exists():
        pytest.skip("docs/ is not part of an installed package")
    (found,) = re.findall(rf"^## {step}\. .*?(?=^## |\Z)", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    common, *sections = re.split(r"^### ", found, flags=re.M)
    text = next(each for each in sections if each.startswith(name)) if name else common
    (code,) = re.findall(rf"```{language}\n(.*?)```", text, re.S)
    return code


@contextlib.contextmanager
def pgvector(folder, monkeypatch):
    pytest.importorskip("pgvector", reason="pgvector is not installed")
    psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed")
    pgserver = pytest.importorskip(
        "pgserver", reason="pgserver, which brings PostgreSQL and pgvector, is not installed"
    )
    from pgvector.psycopg import register_vector

    # as root, the server runs as a user of its own, who cannot read the folders of pytest
    with tempfile.TemporaryDirectory() as data, pgserver.get_server(data) as server:
        monkeypatch.setenv("DATABASE_URL", server.get_uri())
        with psycopg.connect(server.get_uri()) as connection:
            connection.execute("CREATE EXTENSION vector")
            register_vector(connection)
            connection.execute(
                f"CREATE TABLE items (id bigint PRIMARY KEY, item text, modality text, embedding vector({D}))"
            )
            for row in TABLE.itertuples(index=False):
                connection.execute("INSERT INTO items VALUES (%s, %s, %s, %s)", tuple(row))
        # an index is searched approximately: rows are compared without
        yield lambda code: re.sub(r"^ *connection.execute\(\"CREATE INDEX.*\n", "", code, flags=re.M)


@contextlib.contextmanager
def qdrant(folder, monkeypatch):
    qdrant_client = pytest.importorskip("qdrant_client", reason="qdrant-client is not installed")
    client = qdrant_client.QdrantClient(path="qdrant")
    params = qdrant_client.models.VectorParams(size=D, distance=qdrant_client.models.Distance.DOT)
    client.create_collection("items", params)
    payload = TABLE[["item", "modality"]].to_dict("records")
    client.upload_collection("items", np.stack(TABLE["embedding"]), payload, TABLE["id"].tolist())
    client.close()
    # a page of fewer points than there are, so that the loop turns
    yield lambda code: code.replace("limit=1000", "limit=50")


@contextlib.contextmanager
def milvus(folder, monkeypatch):
    pytest.importorskip("milvus_lite", reason="milvus-lite is not installed")
    pymilvus = pytest.importorskip("pymilvus", reason="pymilvus is not installed")
    client = pymilvus.MilvusClient("milvus.db")
    client.create_collection("items", dimension=D, vector_field_name="embedding", metric_type="IP")
    client.insert("items", [{**row, "embedding": row["embedding"].tolist()} for row in TABLE.to_dict("records")])
    client.close()
    yield lambda code: code.replace("batch_size=1000", "batch_size=50").replace("1000", "50")


class StandIn(BaseHTTPRequestHandler):
    """What Elasticsearch 9.2 answers to the calls of the page: mappings, bulk, scroll and exact knn."""

    indices: dict = {}  # noqa: RUF012
    scroll: list = []  # noqa: RUF012

    def log_message(self, *args):
        pass

    def read(self):
        return self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()

    def bulk(self):
        lines = [json.loads(line) for line in self.read().splitlines()]
        for head, source in zip(lines[::2], lines[1::2], strict=True):
            index = self.indices[head["index"]["_index"]]
            vectors = index["mappings"]["properties"]["embedding"]
            assert len(source["embedding"]) == vectors["dims"]
            assert vectors["similarity"] == "max_inner_product"  # rows are not of unit length
            index["documents"][str(head["index"]["_id"])] = source
        self.answer({"errors": False, "items": [{"index": {"status": 201}} for _ in lines[::2]]})

    def do_POST(self):
        index, _, action = self.path.partition("?")[0].strip("/").rpartition("/")
        body = self.read()
        if action == "scroll":
            return self.page()
        asked = json.loads(body)
        documents = self.indices[index]["documents"]
        if "knn" in asked:
            found, knn = {}, asked["knn"]
            for key, source in documents.items():
                product = float(np.dot(source[knn["field"]], knn["query_vector"]))
                found[key] = product + 1 if product >= 0 else 1 / (1 - product)
            best = sorted(found, key=found.__getitem__, reverse=True)[: knn["k"]]
            return self.answer({"hits": {"hits": [{"_id": key, "_score": found[key]} for key in best]}})
        left_out = set() if asked.get("_source", {}).get("exclude_vectors") is False else {"embedding"}
        type(self).scroll = [
            {"_id": key, "_source": {name: each for name, each in source.items() if name not in left_out}}
            for key, source in documents.items()
        ]
        return self.page()

    def do_PUT(self):
        name = self.path.partition("?")[0].strip("/")
        if name == "_bulk":
            return self.bulk()
        self.indices[name] = {**json.loads(self.read()), "documents": {}}
        return self.answer({"acknowledged": True, "index": name})

    def do_DELETE(self):
        self.answer({"succeeded": True})

    def page(self):
        hits, type(self).scroll = self.scroll[:50], self.scroll[50:]
        shards = {"total": 1, "successful": 1, "skipped": 0, "failed": 0}
        self.answer({"_scroll_id": "next", "_shards": shards, "hits": {"hits": hits}})

    def answer(self, said):
        body = json.dumps(said).encode()
        self.send_response(200)
        self.send_header("X-Elastic-Product", "Elasticsearch")
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextlib.contextmanager
def elasticsearch(folder, monkeypatch):
    pytest.importorskip("elasticsearch", reason="elasticsearch is not installed")
    server = HTTPServer(("127.0.0.1", 0), StandIn)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("ELASTICSEARCH_URL", f"http://127.0.0.1:{server.server_port}")
    documents = {str(row["id"]): {**row, "embedding": row["embedding"].tolist()} for row in TABLE.to_dict("records")}
    StandIn.indices = {"items": {"documents": documents}}
    yield lambda code: code
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def diagnosed(tmp_path_factory):
    """A folder after the commands of the second step, which write a repair and its script."""
    folder = tmp_path_factory.mktemp("diagnosed")
    columns = {"id": "key", "item": "item_id"}
    TABLE.rename(columns=columns).to_parquet(folder / "items.parquet")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for line in block(2, language="sh").splitlines():
            patch.setattr(sys, "argv", shlex.split(line))
            with pytest.raises(SystemExit) as ended:
                main()
            assert not ended.value.code, line
    return folder


@pytest.mark.parametrize(
    ("name", "database"),
    list(zip(NAMES, (pgvector, qdrant, milvus, elasticsearch), strict=True)),
    ids=NAMES,
)
@pytest.mark.filterwarnings("ignore")  # of the clients
def test_vectors_come_out_and_the_repair_goes_in(name, database, diagnosed, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for module in ("shipped", "shipped.repair"):  # of another folder
        monkeypatch.delitem(sys.modules, module, raising=False)
    shutil.copytree(diagnosed / "shipped", "shipped")
    with database(tmp_path, monkeypatch) as adapted:
        exec(adapted(block(1, name)), {})
        table = pd.read_parquet("items.parquet").sort_values("key", key=lambda keys: keys.astype(int))
        assert table["key"].astype(int).tolist() == TABLE["id"].tolist()
        assert table["item_id"].tolist() == TABLE["item"].tolist()
        assert table["modality"].tolist() == TABLE["modality"].tolist()
        np.testing.assert_array_equal(np.stack(table["embedding"]).astype(np.float32), np.stack(TABLE["embedding"]))
        sets = cg.read_any("items.parquet")
        i, j = cg.pair(sets["image"], sets["text"])
        assert len(i) == N and (sets["image"].item_id[i] == sets["text"].item_id[j]).all()

        names: dict = {}
        for code in (block(2), block(3), adapted(block(3, name))):
            exec(code, names)

        repair = cg.Repair.load(diagnosed / "repair.safetensors")
        known = {modality: each.vectors.astype(float) for modality, each in sets.items()}
        scores = repair.mixed("image", names["raw"].astype(float), known)
        keys = np.concatenate([np.asarray(sets[modality].metadata["key"]).astype(int) for modality in scores])
        expected = keys[np.argsort(-np.concatenate([*scores.values()], axis=1)[0])[:10]]
        assert (
            isinstance(repair, InnerProduct) and names["columns"] == repair.item_rows("image", known["image"]).shape[1]
        )
        printed = capsys.readouterr().out.strip().splitlines()[-1]
        assert [int(key) for key in re.findall(r"\d+", printed)] == expected.tolist()


def test_every_block_is_run():
    steps = [(1, name) for name in NAMES] + [(2, ""), (3, "")] + [(3, name) for name in NAMES]
    found = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
    assert [block(*step) for step in steps] == found
