#include "storage/import/round_readers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace draftscope::storage {

namespace {

bool has(std::string_view line, std::string_view text) {
    return line.find(text) != std::string_view::npos;
}

bool is_event(std::string_view line) {
    return line.starts_with("data:");
}

/// Parses a line. Python writes NaN where JSON has no number.
std::optional<Json> parse_line(std::string_view line, RoundsSink& out) {
    Json value = Json::parse(line, nullptr, false);
    if (value.is_object()) return value;
    out.refuse(has(line, "NaN") ? "NaN is no number of JSON; write null"
                                : "no JSON object; the line may be cut off");
    return std::nullopt;
}

class DsroundsReader : public RoundsReader {
  public:
    void read(std::string_view line, RoundsSink& out) override {
        if (line.find_first_not_of(" \t") == std::string_view::npos) return;
        if (const auto value = parse_line(line, out)) out.add(*value);
    }
};

}  // namespace

void AnswerReader::read(std::string_view line, RoundsSink& out) {
    text_.append(line).append("\n");
    // A document over several lines ends with a line that begins with its bracket.
    if (text_.size() == line.size() + 1 || line.starts_with('}') || line.starts_with(']')) take(out);
}

bool AnswerReader::take(RoundsSink& out) {
    const Json document = Json::parse(text_, nullptr, false);
    if (document.is_discarded()) return false;
    text_.clear();
    for (const Json& answer : document.is_array() ? document : Json::array({document})) convert_(answer, out);
    return true;
}

void AnswerReader::finish(RoundsSink& out) {
    if (text_.find_first_not_of(" \t\n") != std::string::npos && !take(out))
        out.refuse("no JSON; the file may be cut off");
}

void StreamReader::read(std::string_view line, RoundsSink& out) {
    constexpr std::string_view arrived = ": arrived ";
    if (line.starts_with(arrived)) {
        const auto time = leading_number(line.substr(arrived.size()));
        if (time && *time >= 0) arrival_ = static_cast<TimeNs>(*time);
    }
    if (!is_event(line)) return;
    line.remove_prefix(5);
    line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
    if (line == "[DONE]") return;
    if (const auto value = parse_line(line, out)) event(*value, out);
}

void add_histogram(const std::string& request, const std::vector<int>& histogram,
                   std::optional<std::int64_t> drafted, RoundsSink& out) {
    for (std::size_t accepted = 0; accepted < histogram.size(); ++accepted)
        if (histogram[accepted] > 0) out.add({{"req", request}, {"n", histogram[accepted]}, {"a", accepted}});
    if (drafted) out.add({{"req", request}, {"d_sum", *drafted}});
}

Json make_header(std::string_view engine, std::string_view source, const std::string& target) {
    Json header = {{"dsrounds", 1}, {"engine", engine}, {"source", source}, {"tree", "chain"}};
    if (!target.empty()) header["target"] = target;
    return header;
}

std::optional<double> leading_number(std::string_view text) {
    const std::string copy(text.substr(0, 40));
    char* end = nullptr;
    const double value = std::strtod(copy.c_str(), &end);
    return end == copy.c_str() || !std::isfinite(value) ? std::nullopt : std::optional(value);
}

std::int64_t to_ns(double ms) {
    return std::llround(std::clamp(ms, 0.0, 1e12) * 1e6);
}

std::unique_ptr<RoundsReader> make_dsrounds_reader() {
    return std::make_unique<DsroundsReader>();
}

// The first format that matches a line reads the file.
const std::vector<RoundsFormat>& rounds_formats() {
    static const std::vector<RoundsFormat> formats = {
        {"dsrounds", [](std::string_view l) { return has(l, "\"dsrounds\""); }, make_dsrounds_reader},
        {"llama-stream", [](std::string_view l) { return is_event(l) && has(l, "\"timings\":"); },
         make_llama_stream_reader},
        {"vllm-stream", [](std::string_view l) { return is_event(l) && has(l, "token_ids\":"); },
         make_vllm_stream_reader},
        {"llama-answer", [](std::string_view l) { return has(l, "\"timings\":"); }, make_llama_answer_reader},
        {"sglang-answer",
         [](std::string_view l) { return has(l, "\"spec_verify_ct\"") || has(l, "spec_tokens_details"); },
         make_sglang_answer_reader},
        {"vllm-answer",
         [](std::string_view l) {
             return has(l, "speculative_decoding\":") && !has(l, "total_draft_tokens");
         },
         make_vllm_answer_reader},
        {"trtllm-answer", [](std::string_view l) { return has(l, "\"total_accepted_draft_tokens\""); },
         make_trtllm_answer_reader},
        {"metrics", [](std::string_view l) { return has(l, ":spec_decode_num_drafts"); },
         make_metrics_reader},
        {"vllm-log", [](std::string_view l) { return has(l, "SpecDecoding metrics:"); },
         make_vllm_log_reader},
        {"llama-log",
         [](std::string_view l) {
             return has(l, "| task ") || has(l, "speculative implementation") || has(l, "draft candidate ");
         },
         make_llama_log_reader},
    };
    return formats;
}

}  // namespace draftscope::storage
