// Sums of servers: histograms in answers of SGLang and TensorRT-LLM, and counters of /metrics.
#include <fmt/format.h>

#include <cmath>
#include <numeric>

#include "storage/import/round_readers.h"

namespace draftscope::storage {

namespace {

/// Returns the first of several names of a field, of newer and older versions.
template <typename Get>
auto first_of(std::initializer_list<const char*> names, Get get) {
    auto value = get(*names.begin());
    for (const char* name : names)
        if (!value) value = get(name);
    return value;
}

/// Adds the request of an answer with a histogram, or with sums, if they agree.
void add_sums(RoundFields& fields, const Json& header, const std::optional<std::vector<int>>& histogram,
              std::optional<std::int64_t> rounds, std::optional<std::int64_t> accepted,
              std::optional<std::int64_t> drafted, RoundsSink& out) {
    std::int64_t sum = 0, weighted = 0;
    for (std::size_t i = 0; histogram && i < histogram->size(); ++i) {
        sum += (*histogram)[i];
        weighted += static_cast<std::int64_t>(i) * (*histogram)[i];
    }
    if (histogram && ((rounds && sum != *rounds) || (accepted && weighted != *accepted)))
        fields.refuse("histogram",
                      fmt::format("{} rounds and {} accepted drafts, but the answer has {} and {}", sum,
                                  weighted, rounds.value_or(sum), accepted.value_or(weighted)));
    if (!histogram && !(rounds && accepted)) fields.refuse("histogram", "missing; it has no acceptance");
    if (!fields.problem().empty()) return out.refuse(fields.problem());
    out.add(header);
    const std::string name = out.next_request();
    if (histogram) return add_histogram(name, *histogram, drafted, out);
    if (*rounds == 0) return;
    Json line = {{"req", name}, {"n", *rounds}, {"a_sum", *accepted}};
    if (drafted) line["d_sum"] = *drafted;
    out.add(line);
}

void convert_sglang(const Json& answer, RoundsSink& out) {
    const RoundFields whole(answer);
    const Json* meta = whole.find("meta_info");
    if (meta == nullptr) meta = whole.find("sglext.spec_tokens_details");
    RoundFields fields(meta != nullptr ? *meta : answer);
    const auto integer = [&](const char* name) { return fields.integer(name); };
    const auto list = [&](const char* name) { return fields.integers(name); };
    const auto histogram = first_of({"spec_correct_drafts_histogram", "spec_accept_histogram"}, list);
    const auto accepted =
        first_of({"spec_num_correct_drafts", "spec_accepted_drafts", "spec_accept_token_num"}, integer);
    const auto drafted =
        first_of({"spec_num_proposed_drafts", "spec_proposed_drafts", "spec_draft_token_num"}, integer);
    Json header = make_header("sglang", "response", RoundFields(answer).text("model"));
    header["tree"] = "unknown";
    add_sums(fields, header, histogram, fields.integer("spec_verify_ct"), accepted, drafted, out);
}

void convert_trtllm(const Json& answer, RoundsSink& out) {
    RoundFields complete(answer);
    const Json* choice = complete.first_choice();
    const Json* found = choice != nullptr ? RoundFields(*choice).find("speculative_decoding") : nullptr;
    RoundFields fields(found != nullptr ? *found : answer);
    Json header = make_header("tensorrt-llm", "response", complete.text("model"));
    if (const auto length = fields.integer("num_spec_tokens")) header["k"] = *length;
    add_sums(fields, header, fields.integers("acceptance_histogram"), fields.integer("num_spec_steps"),
             fields.integer("total_accepted_draft_tokens"), fields.integer("total_draft_tokens"), out);
}

/// Two scrapes of /metrics make a window: the rounds between them.
class Metrics : public RoundsReader {
  public:
    void read(std::string_view line, RoundsSink& out) override {
        if (line.starts_with('#')) return;
        const std::size_t blank = line.rfind(' ');
        const std::size_t colon = line.find(":spec_decode_num_");
        if (blank == line.npos || colon == line.npos || line.find("_created") != line.npos) return;
        const std::string_view name = line.substr(colon + 17, line.find_first_of("{ ", colon) - colon - 17);
        const auto value = leading_number(line.substr(blank + 1));
        if (!value || *value < 0 || *value > static_cast<double>(max_count))
            return out.refuse(fmt::format("field {}: {}, expected a number", name, line.substr(blank + 1)));
        scrape_["engine"] = line.substr(0, colon) == "llamacpp" ? "llama.cpp" : line.substr(0, colon);
        if (const std::string model = label(line, "model_name"); !model.empty()) scrape_["model"] = model;
        // Counters of several engines are added up.
        std::string key(name.substr(0, name.find("_total")));
        if (key.ends_with("per_pos")) key += label(line, "position");
        scrape_[key] = scrape_.value(key, std::int64_t{0}) + std::llround(*value);
    }

    void finish(RoundsSink& out) override {
        if (out.kept().is_null()) {
            out.kept() = scrape_;
            return;
        }
        const Json before = std::exchange(out.kept(), Json());
        const auto between = [&](const std::string& key) {
            return scrape_.value(key, std::int64_t{0}) - before.value(key, std::int64_t{0});
        };
        const std::int64_t rounds = between("drafts"), drafted = between("draft_tokens");
        std::vector<int> histogram = {static_cast<int>(rounds)};
        bool falls = rounds < 0 || drafted < 0 || between("accepted_tokens") < 0;
        for (int i = 0; scrape_.contains(fmt::format("accepted_tokens_per_pos{}", i)); ++i) {
            const auto reached = static_cast<int>(between(fmt::format("accepted_tokens_per_pos{}", i)));
            histogram.back() -= reached;
            falls |= histogram.back() < 0;
            histogram.push_back(reached);
        }
        if (scrape_["engine"] != before["engine"] || falls)
            return out.refuse(
                "the counters fall between the scrapes: the server was restarted, or the order "
                "of the files is wrong");
        Json header = make_header(scrape_.value("engine", ""), "metrics", scrape_.value("model", ""));
        RoundFields fields(scrape_);
        std::optional<std::vector<int>> known;
        if (histogram.size() > 1) known = histogram;
        add_sums(fields, header, known, rounds, between("accepted_tokens"), drafted, out);
    }

  private:
    static std::string label(std::string_view line, std::string_view key) {
        const std::size_t at = line.find(fmt::format("{}=\"", key));
        if (at == line.npos) return {};
        const std::string_view rest = line.substr(at + key.size() + 2);
        return std::string(rest.substr(0, rest.find('"')));
    }

    Json scrape_ = Json::object();
};

}  // namespace

std::unique_ptr<RoundsReader> make_sglang_answer_reader() {
    return std::make_unique<AnswerReader>(convert_sglang);
}
std::unique_ptr<RoundsReader> make_trtllm_answer_reader() {
    return std::make_unique<AnswerReader>(convert_trtllm);
}
std::unique_ptr<RoundsReader> make_metrics_reader() {
    return std::make_unique<Metrics>();
}

}  // namespace draftscope::storage
