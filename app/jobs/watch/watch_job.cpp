#include "app/jobs/watch/watch_job.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "app/jobs/watch/http_client.h"
#include "base/clock.h"
#include "base/join_and.h"

namespace draftscope {
namespace {

using nlohmann::json;

/// A prompt as a server gets it.
struct ServerPrompt {
    json messages;
    const WatchConfig& config;
    std::string model;  ///< name that the server knows
};

/// How an engine is recognised and asked. One entry of `servers` each; flags and shapes: docs/FORMATS.md.
struct Server {
    std::string_view name;
    std::string_view probe;  ///< GET answers with JSON that has `key`
    std::string_view key;
    std::string_view path;    ///< POST
    std::string_view format;  ///< of the answer, as for `import`
    Result<json> (*body)(HttpClient& client, const ServerPrompt& prompt);
    /// What the stream says of itself only at its end, as its first event; null = nothing.
    json (*first_event)(HttpClient& client, const WatchConfig& config) = nullptr;
};

/// Returns the object that a server answered; null if it answered none.
json to_object(const Result<std::string>& answer) {
    json object = answer.ok() ? json::parse(*answer, nullptr, false) : json();
    return object.is_object() ? object : json();
}

/// llama.cpp applies its chat template apart, because only /completion returns token ids.
Result<json> llama_body(HttpClient& client, const ServerPrompt& prompt) {
    DS_ASSIGN(const std::string text,
              client.post("/apply-template", json{{"messages", prompt.messages}}.dump()));
    const json answer = to_object(text);
    if (!answer.contains("prompt"))
        return bad_input("/apply-template: the server's answer has no prompt: {}", text.substr(0, 80));
    return json{{"prompt", answer["prompt"]},
                {"n_predict", prompt.config.max_new},
                {"temperature", prompt.config.temperature},
                {"seed", prompt.config.seed},
                {"stream", true},
                {"return_tokens", true},
                {"timings_per_token", true},
                {"cache_prompt", false}};
}

/// Only answers name the drafter, so one of a single token is asked for.
json llama_first_event(HttpClient& client, const WatchConfig& config) {
    const json body = {{"prompt", "Hi"}, {"n_predict", 1}, {"cache_prompt", false}};
    const json answer = to_object(client.post("/completion", body.dump()));
    if (answer.is_null()) return {};
    json settings = {{"temperature", config.temperature}};
    const json::json_pointer types("/generation_settings/speculative.types");
    if (answer.contains(types)) settings["speculative.types"] = answer[types];
    return {{"model", answer.value("model", config.model)}, {"generation_settings", settings}};
}

Result<json> vllm_body(HttpClient&, const ServerPrompt& prompt) {
    return json{{"model", prompt.model},
                {"messages", prompt.messages},
                {"max_completion_tokens", prompt.config.max_new},
                {"temperature", prompt.config.temperature},
                {"seed", prompt.config.seed},
                {"stream", true},
                {"return_token_ids", true},
                {"stream_options", {{"include_usage", true}}}};
}

Result<json> sglang_body(HttpClient&, const ServerPrompt& prompt) {
    return json{{"model", prompt.model},
                {"messages", prompt.messages},
                {"max_tokens", prompt.config.max_new},
                {"temperature", prompt.config.temperature},
                {"return_spec_tokens_details", true}};
}

const std::vector<Server>& servers() {
    static const std::vector<Server> all = {
        {"llama.cpp", "/props", "default_generation_settings", "/completion", "llama-stream", llama_body,
         llama_first_event},
        {"sglang", "/get_server_info", "internal_states", "/v1/chat/completions", "sglang-answer",
         sglang_body},
        {"vllm", "/version", "version", "/v1/chat/completions", "vllm-stream", vllm_body},
    };
    return all;
}

/// Asks the server which engine it is.
Result<const Server*> find_server(HttpClient& client, const WatchConfig& config) {
    for (const Server& one : servers()) {
        if (!config.engine.empty()) {
            if (config.engine == one.name) return &one;
            continue;
        }
        const auto text = client.get(std::string(one.probe));
        // A server that does not know the path answers at least.
        if (!text.ok() && !client.was_refused()) return text.error();
        if (to_object(text).contains(one.key)) return &one;
    }
    if (!config.engine.empty())
        return bad_input("--engine {}: unknown; known are {}", config.engine, known_servers());
    return bad_input("{}: the server is none of {}, or does not say so; name it with --engine", config.url,
                     known_servers());
}

/// Returns the name of the first model that the server serves; "" = it does not say.
std::string served_model(HttpClient& client) {
    const json answer = to_object(client.get("/v1/models"));
    if (!answer.contains("data") || !answer["data"].is_array() || answer["data"].empty()) return {};
    return answer["data"][0].value("id", std::string());
}

json to_messages(const Conversation& conversation) {
    json messages = json::array();
    if (!conversation.system.empty())
        messages.push_back({{"role", "system"}, {"content", conversation.system}});
    for (const ChatMessage& one : conversation.history)
        messages.push_back({{"role", one.role}, {"content", one.content}});
    messages.push_back({{"role", "user"}, {"content", conversation.turns.front()}});
    return messages;
}

class Watch {
  public:
    Watch(const WatchConfig& config, const Server& server, HttpClient& client, RoundsImport& import)
        : config_(config), server_(server), client_(client), import_(import) {}

    Status begin() {
        if (!config_.words.empty()) words_.open(config_.words, std::ios::binary);
        if (!config_.words.empty() && !words_) return bad_input("{}: cannot be written", config_.words);
        if (server_.first_event != nullptr) first_event_ = server_.first_event(client_, config_);
        return {};
    }

    Status send(const Conversation& conversation, const std::string& model) {
        const ServerPrompt prompt{to_messages(conversation), config_, model};
        DS_ASSIGN(const json body, server_.body(client_, prompt));
        const std::string name =
            conversation.id.empty() ? std::to_string(conversation.index) : conversation.id;
        import_.begin(name);
        if (first_event_.is_object()) {
            first_event_["prompt"] = body["prompt"];
            DS_TRY(pass(fmt::format("data: {}\n\n", first_event_.dump())));
        }
        const TimeNs start = monotonic_ns();
        // Where the engine sends no times, those of the arrival stand for them: a comment of the stream.
        const auto receive = [&](std::string_view bytes) {
            return take(fmt::format(": arrived {}\n", monotonic_ns() - start), bytes);
        };
        const Status status = client_.post(std::string(server_.path), body.dump(), receive);
        const Status ended = import_.end();
        return status.ok() ? ended : status;
    }

  private:
    Status take(const std::string& time, std::string_view bytes) {
        // Between lines only: the bytes may end within one.
        if (line_ended_ && server_.format.ends_with("-stream")) DS_TRY(pass(time));
        line_ended_ = bytes.ends_with('\n');
        return pass(bytes);
    }
    Status pass(std::string_view bytes) {
        if (words_.is_open()) words_.write(bytes.data(), static_cast<std::streamsize>(bytes.size())).flush();
        return import_.read(bytes);
    }

    const WatchConfig& config_;
    const Server& server_;
    HttpClient& client_;
    RoundsImport& import_;
    json first_event_;
    std::ofstream words_;
    bool line_ended_ = true;
};

}  // namespace

std::string known_servers() {
    std::vector<std::string> names;
    for (const Server& one : servers()) names.emplace_back(one.name);
    return join_and(names);
}

Result<WatchReport> watch(const WatchConfig& config, RecordSink& sink, const JobHooks& hooks) {
    if (config.max_new < 1) return bad_input("--max-new {}: must be at least 1", config.max_new);
    if (!(config.temperature >= 0))
        return bad_input("--temperature {}: must be 0 or more", config.temperature);
    DS_ASSIGN(const auto client,
              HttpClient::create({config.url, config.headers, config.timeout_s, hooks.cancelled}));
    hooks.report(-1, "asking the server which engine it is");
    DS_ASSIGN(const Server* server, find_server(*client, config));
    RoundsOptions options = config.rounds;
    options.format = server->format;
    options.header.emplace("temperature", fmt::format("{:g}", config.temperature));
    const std::string model = config.model.empty() ? served_model(*client) : config.model;
    if (!model.empty()) options.header.emplace("target", model);
    const auto import = RoundsImport::create(options, sink);
    Watch watch(config, *server, *client, *import);
    DS_TRY(watch.begin());
    WatchReport report;
    report.engine = server->name;
    Status last;
    for (const Conversation& one : config.conversations) {
        hooks.report(static_cast<double>(report.prompts) / static_cast<double>(config.conversations.size()),
                     fmt::format("prompt {}", report.prompts + 1));
        last = watch.send(one, model);
        if (!last.ok()) break;
        ++report.prompts;
    }
    Result<RoundsReport> rounds = import->finish();
    if (!rounds.ok()) return last.ok() ? rounds.error() : last.error();
    report.rounds = std::move(*rounds);
    if (!last.ok()) report.ended = last.error().message;
    return report;
}

}  // namespace draftscope
