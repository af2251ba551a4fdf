// Streams of llama.cpp's server (/completion and chat) with `timings_per_token`. A chunk begins a round
// exactly when `predicted_ms` changes; the counters are those since the start of the request. Only the last
// chunk names model and drafter, unless `watch` puts an event with them first; then rounds come one by one.
#include <fmt/format.h>

#include "storage/import/round_readers.h"

namespace draftscope::storage {

namespace {

/// Returns the draft method of "none,draft-eagle3".
std::string method_of(std::string types) {
    if (types.starts_with("none,")) types.erase(0, 5);
    return types;
}

/// The server names its model by the path that it was started with.
std::string file_name(const std::string& model) {
    return model.ends_with(".gguf") ? model.substr(model.rfind('/') + 1) : model;
}

class LlamaStream : public StreamReader {
  public:
    void event(const Json& chunk, RoundsSink& out) override {
        RoundFields fields(chunk);
        const auto time = fields.real("timings.predicted_ms");
        const auto tokens = fields.integer("timings.predicted_n");
        if (time && tokens) take(fields, *time, *tokens);
        if (!fields.problem().empty()) return out.refuse(fields.problem());
        describe(fields);
        if (!time) described_ = described_ || !model_.empty();
        if (described_ && rounds_.size() > 1) send(out, rounds_.size() - 1);
        // The last chunk of a chat has the usage, that of a completion says stop.
        if (fields.find("usage") != nullptr || (fields.flag("stop") && fields.find("generation_settings")))
            flush(out);
    }
    void finish(RoundsSink& out) override {
        if (rounds_.empty()) return;
        out.note("the stream has no end; its rounds so far are kept");
        flush(out);
    }

  private:
    void take(RoundFields& fields, double time, std::int64_t tokens) {
        const auto drafted = fields.integer("timings.draft_n").value_or(0);
        const auto accepted = fields.integer("timings.draft_n_accepted").value_or(0);
        if (tokens == tokens_ || tokens == 0) return;
        const auto ids = fields.integers("tokens");
        const Json* text = fields.find("content");
        if (const Json* choice = fields.first_choice(); choice != nullptr)
            text = RoundFields(*choice).find("delta.content");
        if (tokens_ == 0) {
            request_["prompt_tokens"] = fields.integer("timings.prompt_n").value_or(0) +
                                        fields.integer("timings.cache_n").value_or(0);
            request_["prefill_ns"] = to_ns(fields.real("timings.prompt_ms").value_or(0));
            if (ids && ids->size() == 1) request_["first_id"] = (*ids)[0];
            if (text != nullptr) request_["first_text"] = *text;
        } else {
            if (time != time_ || rounds_.empty()) {
                rounds_.push_back({{"i", next_round_++},
                                   {"d", drafted - drafted_},
                                   {"a", accepted - accepted_},
                                   {"c", 0},
                                   {"out", Json::array()},
                                   {"text", ""},
                                   {"t0", to_ns(time_)},
                                   {"dt", to_ns(time) - to_ns(time_)}});
            }
            Json& round = rounds_.back();
            round["c"] = round["c"].get<std::int64_t>() + tokens - tokens_;
            for (std::size_t i = 0; ids && i < ids->size(); ++i) round["out"].push_back((*ids)[i]);
            if (text != nullptr && text->is_string())
                round["text"] = round["text"].get<std::string>() + text->get<std::string>();
        }
        time_ = time;
        tokens_ = tokens;
        drafted_ = drafted;
        accepted_ = accepted;
    }

    /// Keeps what chunks say of the request. A chat has it under `__verbose`.
    void describe(RoundFields& fields) {
        if (const std::string end = fields.text("stop_type"); !end.empty()) end_ = end;
        if (described_) return;
        for (const std::string prefix : {"", "__verbose."}) {
            if (const std::string model = fields.text(prefix + "model"); !model.empty())
                model_ = file_name(model);
            if (const std::string prompt = fields.text(prefix + "prompt"); !prompt.empty())
                request_["prompt"] = prompt;
            if (const auto value = fields.real(prefix + "generation_settings.temperature"))
                temperature_ = *value;
            const Json* settings = fields.find(prefix + "generation_settings");
            if (settings != nullptr && settings->contains("speculative.types"))
                types_ = (*settings)["speculative.types"];
            if (const std::string end = fields.text(prefix + "stop_type"); !end.empty()) end_ = end;
        }
    }

    /// Sends the header and the request, once.
    void begin(RoundsSink& out) {
        if (request_.contains("req")) return;
        Json header = make_header("llama.cpp", "stream", model_);
        header.update({{"first_token", "prefill"}, {"clock", "engine"}});
        if (types_.is_string()) header["drafter"] = method_of(types_.get<std::string>());
        if (!temperature_.is_null()) header["temperature"] = temperature_;
        out.add(header);
        request_["req"] = out.next_request();
        out.add(request_);
    }

    /// Sends the first `count` rounds.
    void send(RoundsSink& out, std::size_t count) {
        begin(out);
        for (std::size_t i = 0; i < count; ++i) {
            Json& round = rounds_[i];
            round["req"] = request_["req"];
            // Texts of a chat hold no ids, and one held back by a stop word lacks some.
            if (round["out"].size() != round["c"].get<std::size_t>()) round.erase("out");
            out.add(round);
        }
        rounds_.erase(rounds_.begin(), rounds_.begin() + static_cast<std::ptrdiff_t>(count));
    }

    void flush(RoundsSink& out) {
        if (tokens_ == 0) return;
        if (!end_.empty() && !rounds_.empty()) rounds_.back()["end"] = end_ == "word" ? "stop" : end_;
        send(out, rounds_.size());
        out.add({{"req", request_["req"]}, {"completion_tokens", tokens_}});
        request_ = Json::object();
        tokens_ = drafted_ = accepted_ = 0;
        time_ = 0;
        next_round_ = 0;
        end_.clear();
    }

    Json request_ = Json::object(), types_, temperature_;
    std::vector<Json> rounds_;
    std::string model_, end_;
    std::int64_t tokens_ = 0, drafted_ = 0, accepted_ = 0;
    double time_ = 0;
    int next_round_ = 0;
    bool described_ = false;  ///< an event before the first chunk named the model
};

void convert_llama_answer(const Json& answer, RoundsSink& out) {
    RoundFields fields(answer);
    const auto tokens = fields.integer("timings.predicted_n", 1);
    const auto drafted = fields.integer("timings.draft_n").value_or(0);
    const auto accepted = fields.integer("timings.draft_n_accepted").value_or(0);
    const auto prompt = fields.integer("timings.prompt_n").value_or(0);
    const auto cached = fields.integer("timings.cache_n").value_or(0);
    const double prefill = fields.real("timings.prompt_ms").value_or(0);
    const std::string model = file_name(fields.text("model")), text = fields.text("prompt");
    if (!tokens) fields.refuse("timings.predicted_n", "missing");
    if (tokens && *tokens - 1 < accepted)
        fields.refuse("timings.draft_n_accepted", fmt::format("{} of {} tokens", accepted, *tokens));
    if (!fields.problem().empty()) return out.refuse(fields.problem());
    Json header = make_header("llama.cpp", "response", model);
    header["first_token"] = "prefill";
    out.add(header);
    const std::string name = out.next_request();
    Json request = {{"req", name},
                    {"prompt_tokens", prompt + cached},
                    {"prefill_ns", to_ns(prefill)},
                    {"completion_tokens", *tokens}};
    if (!text.empty()) request["prompt"] = text;
    out.add(request);
    // The first token is the prefill's; each round adds one to what it accepted.
    const std::int64_t rounds = *tokens - 1 - accepted;
    if (rounds > 0) out.add({{"req", name}, {"n", rounds}, {"a_sum", accepted}, {"d_sum", drafted}});
}

}  // namespace

std::unique_ptr<RoundsReader> make_llama_stream_reader() {
    return std::make_unique<LlamaStream>();
}

std::unique_ptr<RoundsReader> make_llama_answer_reader() {
    return std::make_unique<AnswerReader>(convert_llama_answer);
}

}  // namespace draftscope::storage
