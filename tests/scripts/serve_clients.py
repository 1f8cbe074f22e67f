"""Asks two `bert serve` with clients from PyPI, and checks what they make of the answers.

Usage: serve_clients.py PORT CLASSIFIER_PORT
The first server has the models mini (embedding), ranker (rerank), qa (question-answering) and ner (token-classification), the second one
cls (text-classification). serve_clients_requirements.txt has the clients. Prints a line for each call that fails; then exits with 1.
"""
import os
import sys
import traceback

os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"

import cohere
import numpy as np
import openai
import tritonclient.http as triton
from huggingface_hub import InferenceClient
from langchain_openai import OpenAIEmbeddings

server, classifier = (f"http://127.0.0.1:{port}" for port in sys.argv[1:])
texts = ["the cat", "the cat sat on the mat."]
asked, failed = 0, 0


def check(call):
    global asked, failed
    asked += 1
    try:
        call()
    except Exception:
        failed += 1
        print(f"{call.__name__}: {traceback.format_exc(limit=-2)}")


def same(one, other):
    one, other = np.asarray(one, dtype=np.float64), np.asarray(other, dtype=np.float64)
    assert one.shape == other.shape, (one.shape, other.shape)
    assert np.abs(one - other).max() < 1e-6, np.abs(one - other).max()


openai_client = openai.OpenAI(base_url=server + "/v1", api_key="none", max_retries=0)
vectors = [each.embedding for each in openai_client.embeddings.create(model="mini", input=texts).data]


def openai_embeddings():
    same(np.linalg.norm(vectors, axis=1), [1, 1])
    same([each.embedding for each in openai_client.embeddings.create(model="mini", input=texts, encoding_format="float").data], vectors)
    assert openai_client.embeddings.create(model="mini", input=["the"] * 2048).usage.total_tokens == 3 * 2048
    assert [each.id for each in openai_client.models.list().data] == ["mini", "ranker", "qa", "ner"]
    try:
        openai_client.embeddings.create(model="other", input="the")
    except openai.NotFoundError as error:
        assert error.code == "model_not_found"
    else:
        raise AssertionError("another model's name was taken")


def langchain_embeddings():
    client = OpenAIEmbeddings(base_url=server + "/v1", api_key="none", model="mini", check_embedding_ctx_length=False)
    same(client.embed_documents(texts), vectors)
    same(client.embed_query(texts[0]), vectors[0])


def hugging_face_embeddings():
    client = InferenceClient(model=server)
    same(client.feature_extraction(texts[0], truncate=True, truncation_direction="left")[0], vectors[0])
    cosine = float(np.dot(*vectors))
    same(client.sentence_similarity(texts[0], other_sentences=[texts[1]]), [cosine])
    same(InferenceClient(model=server + "/models/mini").sentence_similarity(texts[0], other_sentences=[texts[1]]), [cosine])
    assert InferenceClient(model=server, provider="hf-inference").get_endpoint_info()["max_client_batch_size"] == 2048


def hugging_face_classes():
    labels = InferenceClient(model=classifier).text_classification("5 6 7")
    assert len(labels) > 1 and abs(sum(label.score for label in labels) - 1) < 1e-6, labels


def hugging_face_answers():
    client, context = InferenceClient(model=server + "/models/qa"), "5 6 7 8 9 10 11 12"
    answer = client.question_answering(question="20 21", context=context, align_to_words=True, doc_stride=2, max_seq_len=10, max_question_len=4)
    assert context[answer.start : answer.end] == answer.answer, answer


def hugging_face_tags():
    client = InferenceClient(model=server + "/models/ner")
    for entity in client.token_classification("5 6 20", aggregation_strategy="simple", ignore_labels=[], stride=2):
        assert "5 6 20"[entity.start : entity.end] == entity.word, entity


def cohere_ranks():
    documents, scores = ["5 6 7", "20 21", ""], []
    for client in (cohere.ClientV2("none", base_url=server), cohere.Client("none", base_url=server)):
        answer = client.rerank(model="ranker", query="5", documents=documents)
        scores.append([each.relevance_score for each in sorted(answer.results, key=lambda each: each.index)])
        assert [each.relevance_score for each in answer.results] == sorted(scores[-1], reverse=True)
        assert answer.id and answer.meta.tokens.input_tokens > 0, answer
    same(*scores)
    client = cohere.ClientV2("none", base_url=server)
    cut = client.rerank(model="ranker", query="5", documents=documents, top_n=3, max_tokens_per_doc=1, priority=0)
    first = client.rerank(model="ranker", query="5", documents=["5", "20", ""])
    same([each.relevance_score for each in cut.results], [each.relevance_score for each in first.results])


def triton_tensors():
    client = triton.InferenceServerClient(server.removeprefix("http://"))
    assert client.is_server_ready() and client.is_model_ready("mini", "1")
    assert client.get_model_config("mini")["output"][0]["name"] == "embedding"
    assert [each["name"] for each in client.get_model_repository_index()] == ["mini", "ranker", "qa", "ner"]
    for shape in ([2], [2, 1], [1, 2]):
        tensor = triton.InferInput("text", shape, "BYTES")
        tensor.set_data_from_numpy(np.array([text.encode() for text in texts], dtype=object).reshape(shape))
        for options in ({}, {"request_compression_algorithm": "gzip"}, {"request_compression_algorithm": "deflate"},
                        {"priority": 1, "timeout": 1000000, "sequence_id": 3, "sequence_start": True}):
            same(client.infer("mini", [tensor], parameters={"normalize": True}, **options).as_numpy("embedding"), vectors)
    try:
        client.infer("mini", [tensor], outputs=[triton.InferRequestedOutput("embedding", class_count=2)])
    except triton.InferenceServerException as error:
        assert "classification" in str(error), error
    else:
        raise AssertionError("class_count was ignored")


for call in (openai_embeddings, langchain_embeddings, hugging_face_embeddings, hugging_face_classes, hugging_face_answers, hugging_face_tags,
             cohere_ranks, triton_tensors):
    check(call)
print(f"{asked} groups of calls, {failed} failed")
sys.exit(failed > 0)
