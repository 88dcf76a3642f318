"""The blocks of docs/howto/databases.md run on databases that each client fills, and find what the repair ranks first.

PostgreSQL with pgvector comes from the package pgserver; Qdrant and Milvus run in this process. For Elasticsearch there
is no server to install: its client talks to `StandIn`, which answers the calls of the page.
"""

import contextlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pandas as pd
import pytest

import clip_geometry as cg
from clip_geometry.cli import main
from clip_geometry.search.repairs import InnerProduct
from clip_geometry.search.shipping import item_map, query_map

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "databases.md"
NAMES = ("pgvector", "Qdrant", "Milvus", "Elasticsearch")
N, D = 300, 64
FOUND = 0.9  # of the exact top ten by HNSW, whose levels are drawn; one index of both modalities finds about 0.6
RNG = np.random.default_rng(0)
ITEMS = RNG.normal(size=(N, D))
# where one list of scores needs `posterior`, whose extended rows one HNSW index of both modalities does not find
ROWS = {"image": ITEMS + RNG.normal(size=(N, D)) + 0.5, "text": ITEMS + RNG.normal(size=(N, D)) - 0.5}
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
            # a table this small would be read row by row; what is checked is what the indexes find
            connection.execute("ALTER ROLE CURRENT_USER SET enable_seqscan = off")
        yield lambda code: code


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
    yield lambda code: code.replace("limit=1000", "limit=250")


@contextlib.contextmanager
def milvus(folder, monkeypatch):
    pytest.importorskip("milvus_lite", reason="milvus-lite is not installed")
    pymilvus = pytest.importorskip("pymilvus", reason="pymilvus is not installed")
    client = pymilvus.MilvusClient("milvus.db")
    client.create_collection("items", dimension=D, vector_field_name="embedding", metric_type="IP")
    client.insert("items", [{**row, "embedding": row["embedding"].tolist()} for row in TABLE.to_dict("records")])
    client.close()
    yield lambda code: code.replace("batch_size=1000", "batch_size=250").replace("1000", "250")


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
        documents = {}
        for name in unquote(index).split(","):
            documents |= self.indices[name]["documents"]
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
        hits, type(self).scroll = self.scroll[:250], self.scroll[250:]
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
        sets = cg.read("items.parquet")
        i, j = cg.pair(sets["image"], sets["text"])
        assert len(i) == N and (sets["image"].item_id[i] == sets["text"].item_id[j]).all()

        if name == "pgvector" and shutil.which("psql"):
            (command,) = re.findall(r"^psql .*$", PAGE.read_text(encoding="utf-8"), re.M)
            subprocess.run(["sh", "-c", command], check=True)
            for modality, dumped in cg.read("items.csv").items():
                np.testing.assert_array_equal(dumped.vectors.astype(np.float32), sets[modality].vectors)
                assert (dumped.item_id == sets[modality].item_id).all()

        names: dict = {}
        for code in (block(2), block(3), adapted(block(3, name))):
            exec(code, names)
        printed = capsys.readouterr().out.strip().splitlines()[-1]

        repair = cg.search.Repair.load(diagnosed / "repair.safetensors")
        known = {modality: each.vectors.astype(float) for modality, each in sets.items()}
        assert (
            isinstance(repair, InnerProduct) and names["columns"] == item_map(repair, "image")(known["image"]).shape[1]
        )
        keys = {modality: np.asarray(each.metadata["key"]).astype(int) for modality, each in sets.items()}
        expected = first(repair.mixed("image", names["raw"].astype(float), known), keys)[0]
        found = [int(key) for key in re.findall(r"\d+", printed)]
        if name == "pgvector":
            assert len(set(found) & set(expected)) >= 10 * FOUND
            the_indexes_find_it(repair, known, keys, names["search"])
            the_baselines_are_found(known, keys, capsys)
        else:
            assert found == expected


def first(scores: dict[str, np.ndarray], keys: dict[str, np.ndarray]) -> list[list[int]]:
    """The keys of the ten items with the highest scores, for each query."""
    order = np.argsort(-np.concatenate([*scores.values()], axis=1), axis=1, kind="stable")[:, :10]
    return np.concatenate([keys[modality] for modality in scores])[order].tolist()


def the_indexes_find_it(repair, known, keys, search):
    """What the page searches by, for every row as a query; PostgreSQL reads the two partial indexes for it."""
    import psycopg
    from pgvector.psycopg import register_vector

    with psycopg.connect(os.environ["DATABASE_URL"]) as connection:
        register_vector(connection)
        for modality, raw in known.items():
            asked = [{"query": row.astype(np.float32)} for row in query_map(repair, modality)(raw)]
            plan = "\n".join(line for (line,) in connection.execute("EXPLAIN " + search, asked[0]))
            assert plan.count("Index Scan using items_repaired_embedding_idx") == 2
            found = [[key for key, _ in connection.execute(search, each)] for each in asked]
            expected = first(repair.mixed(modality, raw, known), keys)
            common = [len(set(one) & set(other)) / 10 for one, other in zip(found, expected, strict=True)]
            assert np.mean(common) >= FOUND, modality


def the_baselines_are_found(known, keys, capsys):
    names: dict = {}
    exec(block(4), names)
    for name in ("other", "rrf"):
        expected = first(
            cg.search.make_repair(name).fit(cg.search.Known(known)).mixed("image", known["image"][:1], known), keys
        )[0]
        assert len(names[name]) == 10 and len(set(names[name]) & set(expected)) >= 10 * FOUND
        assert [key // N for key in names[name]] == [key // N for key in expected]  # the modalities, in turn
    assert f"{names['other']} {names['rrf']}" in capsys.readouterr().out


def test_every_block_is_run():
    steps = [(1, name) for name in NAMES] + [(2, ""), (3, "")] + [(3, name) for name in NAMES] + [(4, "")]
    found = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
    assert [block(*step) for step in steps] == found
