"""Asks a `bert serve` and compares every answer and every error with the schema of its own /openapi.json.

Usage: openapi_answers.py PORT TASK
Needs jsonschema (Debian's python3-jsonschema); without it the program prints SKIPPED. Exits with 1 for an answer that the document does not
describe: another status, another type of content, another form.
"""
import http.client
import json
import re
import sys

try:
    import jsonschema
except ImportError:
    print("SKIPPED: python3 has no jsonschema")
    sys.exit()

port, task = int(sys.argv[1]), sys.argv[2]
texts = {"fill-mask": "the [MASK] sat.", "features": "the cat", "embedding": "the cat", "question-answering": {"question": "20 21", "context": "5 6 7 8 9 10"}}
pair = {"text": "5 6", "text_pair": "20 21"}
text = pair if task == "rerank" else texts.get(task, "5 6 20")
JSON = {"Content-Type": "application/json"}


def ask(method, path, body=None, headers=None):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request(method, path, body, headers or {})
    response = connection.getresponse()
    return response.status, response.getheader("Content-Type", ""), response.read()


document = json.loads(ask("GET", "/openapi.json")[2])
wrong, asked = [], 0


def schema_of(path, method, status):
    """The schema of an answer by type of content; None if the document does not have it."""
    name = re.sub("(?<=models/)[^/]+", "{name}", path)
    answers = document["paths"].get(name, {}).get(method.lower(), {}).get("responses", {})
    answer = answers.get(str(status))
    if answer and "$ref" in answer:
        answer = document["components"]["responses"][answer["$ref"].rsplit("/", 1)[1]]
    return answer and answer.get("content", {})


def check(method, path, body=None, headers=None, want=None):
    global asked
    asked += 1
    status, kind, content = ask(method, path, body if body is None or isinstance(body, (str, bytes)) else json.dumps(body),
                                JSON if body is not None and headers is None else headers)
    what = f"{method} {path} {str(body)[:100]}: {status}"
    if want and status != want:
        return wrong.append(f"{what}, expected {want}: {content[:200]}")
    schemas = schema_of(path, method, status)
    if schemas is None:
        return wrong.append(f"{what} is not in the document: {content[:200]}")
    schema = schemas.get(kind.split(";")[0])
    if schema is None:
        return wrong.append(f"{what} has type {kind}, the document {list(schemas)}")
    if kind == "application/octet-stream":
        return None
    if not kind.startswith("application/json"):
        return None
    whole = {**schema["schema"], "components": document["components"]}
    for error in list(jsonschema.Draft4Validator(whole).iter_errors(json.loads(content)))[:2]:
        wrong.append(f"{what}: {error.message[:300]} at {list(error.absolute_path)}")
    return None


for path in ("/", "/health", "/ready", "/metrics", "/models", "/openapi.json"):
    check("GET", path, want=200)
model = "/models/" + json.loads(ask("GET", "/models")[2])[0]["name"]
parameters = [{}, {"truncate": True}]
parameters += {"fill-mask": [{"top_k": 3}, {"targets": ["the", "cat"]}], "features": [],
               "embedding": [{"normalize": True}, {"dimensions": 3}, {"normalize": False, "dimensions": 4}],
               "text-classification": [{"top_k": 3}, {"function_to_apply": "sigmoid"}, {"function_to_apply": "none", "top_k": 2}],
               "token-classification": [{"aggregation_strategy": s} for s in ("none", "simple", "first", "average", "max")] + [{"ignore_labels": []}, {"stride": 2}],
               "rerank": [{"function_to_apply": "none"}],
               "question-answering": [{"top_k": 3}, {"max_answer_len": 2}, {"handle_impossible_answer": True},
                                      {"doc_stride": 2, "max_seq_len": 12, "max_question_len": 4, "align_to_words": True}]}[task]
for path in ("/predict", model):
    for one in parameters:
        check("POST", path, {"inputs": text, "parameters": one}, want=200)
        check("POST", path, {"inputs": [text, text], "parameters": one}, want=200)
    for body, status in (("{", 400), ("[" * 1000, 400), ({}, 422), ({"inputs": 3}, 422), ({"inputs": []}, 422), ([], 422), ({"inputs": text, "parameters": 3}, 422),
                         ({"inputs": text, "parameters": {"top_k": 0}}, 422), ({"inputs": text, "parameters": {"padding": True}}, 422),
                         ({"inputs": [text] * 2049, "parameters": {}}, 413)):
        classifies = path == "/predict" and task in ("text-classification", "rerank")
        check("POST", path, body, want=400 if classifies and body == {"inputs": []} else status)
    check("POST", path, "inputs", {}, want=415)
    check("POST", path, {"inputs": text}, {**JSON, "Origin": "https://example.org"}, want=403)
    check("POST", path, {"inputs": text}, {**JSON, "Host": "example.org"}, want=421)
if task == "fill-mask":
    check("POST", "/predict", {"inputs": "no mask"}, want=422)
    check("POST", "/predict", {"inputs": "the [MASK] [MASK]"}, want=200)
    check("POST", model, {"inputs": "the [MASK] [MASK]"}, want=200)
if task == "text-classification":
    check("POST", "/predict", {"inputs": {"text": "5", "text_pair": "6"}}, want=200)
    check("POST", "/", {"inputs": ["5", "6"], "raw_scores": True}, want=200)
if task in ("text-classification", "rerank"):  # text-embeddings-inference's form
    for inputs in ("5 6", ["5", "6"], [["5"], ["5", "6"]]):
        check("POST", "/predict", {"inputs": inputs, "raw_scores": False, "truncate": True}, want=200)
    check("POST", "/predict", {"inputs": ["5", "6", "7"]}, want=422)
check("POST", "/models/other", {"inputs": text}, want=404)
for path in ("/info", "/v1/models", "/v1" + model, "/v2", "/v2/health/live", "/v2/health/ready", "/v2" + model, "/v2" + model + "/ready", "/v2" + model + "/config"):
    check("GET", path, want=200)
check("GET", "/v1/models/other", want=404)
check("GET", "/v2/models/other", want=404)
if task in ("embedding", "rerank"):
    own = ({"/": {"inputs": "the cat"}, "/embed": {"inputs": ["the cat", "the"]}, "/embed_all": {"inputs": ["the cat", "the"]},
            "/similarity": {"inputs": {"source_sentence": "the", "sentences": ["the cat", "the"]}}, "/v1/embeddings": {"input": ["the cat", [5, 6]]}}
           if task == "embedding" else
           {"/": {"query": "5 6", "texts": ["5", "6"]}, "/rerank": {"query": "5 6", "texts": ["5", "6"], "return_text": True},
            "/v1/rerank": {"query": "5 6", "documents": ["5", {"text": "6"}], "return_documents": True, "max_tokens_per_doc": 1}, "/v2/rerank": {"query": "5 6", "documents": ["5"]}})
    for path, body in own.items():
        check("POST", path, body, want=200)
        openai, cohere = path.startswith("/v1/emb"), path.endswith("/rerank") and path != "/rerank"
        for bad, status in (("{", 400), ({}, 422), ([], 422)):
            check("POST", path, bad, want=400 if openai or cohere else status)
        check("POST", path, {**body, "nothing": 1}, want=400 if openai or cohere else 200)
        key = next(key for key in ("inputs", "input", "texts", "documents") if key in body)
        if path != "/similarity":
            check("POST", path, {**body, key: ["5"] * 2049}, want=413)
            check("POST", path, {**body, key: []}, want=400)
        check("POST", path, body, {"Content-Type": "text/plain"}, want=415)
    if task == "embedding":
        check("POST", model, own["/similarity"], want=200)
        check("POST", "/v1/embeddings", {"input": "the cat", "encoding_format": "base64"}, want=200)
        check("POST", "/v1/embeddings", {"input": "the cat", "model": "other"}, want=404)
tensors = [{"name": name, "shape": [2], "datatype": "BYTES", "data": [value] * 2} for name, value in
           ([("query", "5 6"), ("text", "20")] if task == "rerank" else list(text.items()) if isinstance(text, dict) else [("text", text)])]
check("POST", "/v2" + model + "/infer", {"inputs": tensors}, want=200)
check("POST", "/v2" + model + "/infer", {"inputs": tensors, "parameters": {"binary_data_output": True}}, want=200)
check("POST", "/v2" + model + "/infer", {"inputs": []}, want=400)
check("POST", "/v2/repository/index", "", {}, want=200)
check("POST", "/v2/repository/index", {"ready": True}, want=200)
for inputs in ("the cat", ["the", "cat"]):
    check("POST", "/tokenize", {"inputs": inputs}, want=200)
check("POST", "/tokenize", {"inputs": 3}, want=422)
print(f"{asked} answers, {len(wrong)} differ from openapi.json", *wrong, sep="\n")
sys.exit(bool(wrong) or asked < 40)
