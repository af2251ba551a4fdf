#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/stand_in_llama.h"
#include "tests/unit/app/cli/program.h"
#include "tests/unit/app/cli/sql.h"

namespace draftscope::testing {
namespace {

using nlohmann::json;

class WatchServer : public ::testing::Test {
  protected:
    static StandInServer::Answer play(const StandInServer::Request& request,
                                      const StandInServer::Answer& completion) {
        return play_llama_server(request, completion);
    }
    std::string out() const { return scratch_.file("w.dscope"); }
    ScratchFolder scratch_;
};

TEST_F(WatchServer, CapturesTheRoundsOfAServer) {
    StandInServer server([](const auto& request) { return play(request, {200, llama_stream()}); });
    const ProcessResult done = run(
        scratch_, {"watch", server.url(), "--prompt", "Say it", "--max-new", "7", "--out", out(), "--json"});
    ASSERT_EQ(done.exit_code, 0) << done.err;
    const json report = json::parse(done.out);
    EXPECT_EQ(report["engine"], "llama.cpp");
    EXPECT_EQ(report["rounds"], 3);
    EXPECT_EQ(report["ended"], nullptr);
    EXPECT_EQ(
        Sql(out()).text("SELECT group_concat(accepted || '/' || drafted || '/' || committed) FROM round"),
        "2/3/3,0/0/1,1/3/2");
    EXPECT_EQ(Sql(out()).text("SELECT drafter || count(*) FROM run"), "draft-eagle31");
    const json body = json::parse(server.requests().back().body);
    EXPECT_EQ(body["prompt"], "<user>Say it");
    EXPECT_EQ(body["n_predict"], 7);
    EXPECT_EQ(body["return_tokens"], true);
}

/// A chunk of vLLM's chat stream; the first of an answer has the prompt's ids.
std::string vllm_chunk(const json& choice, const json& more = json::object()) {
    json out = {{"id", "chatcmpl-1"}, {"model", "tiny"}, {"choices", json::array()}};
    if (!choice.is_null()) out["choices"].push_back(choice);
    out.update(more);
    return "data: " + out.dump() + "\n\n";
}

TEST_F(WatchServer, TakesAChunkOfVllmAsARound) {
    const json metrics = {{"num_spec_tokens", 3},
                          {"num_spec_steps", 2},
                          {"num_draft_tokens", 6},
                          {"per_step_accepted", {2, 1}},
                          {"per_step_drafted", {3, 3}}};
    StandInServer server([&](const auto& request) -> StandInServer::Answer {
        if (request.path == "/version") return {200, {R"({"version":"0.32.0"})"}};
        if (request.path == "/v1/models") return {200, {R"({"data":[{"id":"tiny"}]})"}};
        if (request.path != "/v1/chat/completions") return {404, {R"({"detail":"Not Found"})"}};
        return {200,
                {vllm_chunk({{"delta", {{"role", "assistant"}}}}, {{"prompt_token_ids", {1, 2, 3}}}),
                 vllm_chunk({{"token_ids", {4}}}), vllm_chunk({{"token_ids", {5, 6, 7}}}),
                 vllm_chunk({{"token_ids", {8}}, {"finish_reason", "length"}}),
                 vllm_chunk(nullptr, {{"usage", {{"prompt_tokens", 3}, {"completion_tokens", 5}}},
                                      {"metrics", {{"speculative_decoding", metrics}}}}),
                 "data: [DONE]\n\n"}};
    });
    const ProcessResult done = run(
        scratch_, {"watch", server.url(), "--prompt", "Say it", "--max-new", "5", "--out", out(), "--json"});
    ASSERT_EQ(done.exit_code, 0) << done.err;
    EXPECT_EQ(json::parse(done.out)["engine"], "vllm");
    // The limit cut the last round, which accepted one token.
    EXPECT_EQ(
        Sql(out()).text("SELECT group_concat(accepted || '/' || drafted || '/' || committed) FROM round"),
        "2/3/3,1/3/1");
    EXPECT_EQ(Sql(out()).text("SELECT group_concat(context_length) FROM round"), "4,7");
    EXPECT_EQ(Sql(out()).text("SELECT target || min(end_ns > start_ns) FROM run, round"), "tiny1");
    const json body = json::parse(server.requests().back().body);
    EXPECT_EQ(body["model"], "tiny");
    EXPECT_EQ(body["max_completion_tokens"], 5);
    EXPECT_EQ(body["return_token_ids"], true);
}

TEST_F(WatchServer, KnowsTheTextsOfTokens) {
    StandInServer server([](const auto& request) { return play(request, {200, llama_stream()}); });
    const ProcessResult done = run(scratch_, {"watch", server.url(), "--prompt", "Say it", "--model",
                                              tiny_model(scratch_), "--out", out()});
    ASSERT_EQ(done.exit_code, 0) << done.err;
    EXPECT_EQ(Sql(out()).text("SELECT count(*) > 7 FROM vocab"), "1");
}

TEST_F(WatchServer, SendsHeadersAndKeepsNone) {
    StandInServer server([](const auto& request) { return play(request, {200, llama_stream()}); });
    const std::string headers = scratch_.file("headers");
    write_text(headers, "Authorization: Bearer secret-key\n");
    const ProcessResult done = run(
        scratch_, {"watch", server.url(), "--prompt", "Say it", "--header-file", headers, "--out", out()});
    ASSERT_EQ(done.exit_code, 0) << done.err;
    for (const auto& request : server.requests())
        EXPECT_NE(request.headers.find("Authorization: Bearer secret-key"), std::string::npos);
    EXPECT_EQ(read_text(out()).find("secret-key"), std::string::npos);
    EXPECT_EQ(done.err.find("secret-key"), std::string::npos);
}

TEST_F(WatchServer, KeepsWhatCameBeforeTheServerWentAway) {
    std::vector<std::string> half = llama_stream();
    half.resize(5);
    StandInServer server([&](const auto& request) { return play(request, {200, half, true}); });
    const ProcessResult done = run(
        scratch_, {"watch", server.url(), "--prompt", "Say it", "--timeout", "1", "--out", out(), "--json"});
    EXPECT_EQ(done.exit_code, 1) << done.err;
    const json report = json::parse(done.out);
    EXPECT_EQ(report["rounds"], 2);
    EXPECT_NE(report["ended"].get<std::string>().find("no answer for 1 s"), std::string::npos);
}

TEST_F(WatchServer, SaysWhatAServerRefuses) {
    StandInServer refusing([](const auto& request) { return play(request, {503, {"Loading model"}}); });
    const ProcessResult done = run(scratch_, {"watch", refusing.url(), "--prompt", "Say it", "--out", out()});
    EXPECT_EQ(done.exit_code, 2);
    EXPECT_NE(done.err.find("the server answers 503: Loading model"), std::string::npos) << done.err;
    StandInServer other([](const auto&) { return StandInServer::Answer{404, {}}; });
    const ProcessResult unknown = run(scratch_, {"watch", other.url(), "--prompt", "x", "--out", out()});
    EXPECT_EQ(unknown.exit_code, 2);
    EXPECT_NE(unknown.err.find("llama.cpp, sglang and vllm"), std::string::npos) << unknown.err;
    const ProcessResult nobody =
        run(scratch_, {"watch", "http://127.0.0.1:1", "--prompt", "x", "--out", out()});
    EXPECT_EQ(nobody.exit_code, 2);
    const ProcessResult no_url = run(scratch_, {"watch", "ftp://127.0.0.1", "--prompt", "x", "--out", out()});
    EXPECT_NE(no_url.err.find("not an address"), std::string::npos) << no_url.err;
}

TEST_F(WatchServer, FollowsNoRedirect) {
    StandInServer target([](const auto& request) { return play(request, {200, llama_stream()}); });
    StandInServer server([&](const auto&) {
        return StandInServer::Answer{302, {}, false, "Location: " + target.url() + "/props"};
    });
    const ProcessResult done =
        run(scratch_, {"watch", server.url(), "--prompt", "x", "--engine", "llama.cpp", "--out", out()});
    EXPECT_EQ(done.exit_code, 2);
    EXPECT_NE(done.err.find("the server answers 302"), std::string::npos) << done.err;
    EXPECT_TRUE(target.requests().empty());
}

}  // namespace
}  // namespace draftscope::testing
