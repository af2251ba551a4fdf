// Answers, streams and logs of vLLM.
#include <fmt/format.h>

#include <cmath>
#include <numeric>
#include <regex>

#include "storage/import/round_readers.h"

namespace draftscope::storage {

namespace {

/// One request of vLLM, from an answer or the chunks of a stream.
struct Answer {
    std::string model, end;
    std::optional<std::int64_t> prompt_tokens, completion_tokens;
    std::vector<int> prompt, ids;
    std::vector<std::vector<int>> chunks;  ///< ids of each chunk, the first being the prefill's
    std::vector<TimeNs> times;             ///< arrivals of the chunks; empty = not known
    Json metrics;                          ///< `speculative_decoding`
};

void add_request(const std::string& name, const Answer& answer, RoundsSink& out) {
    Json request = {{"req", name}};
    if (!answer.prompt.empty()) request["prompt_ids"] = answer.prompt;
    if (answer.prompt_tokens) request["prompt_tokens"] = *answer.prompt_tokens;
    if (answer.completion_tokens) request["completion_tokens"] = *answer.completion_tokens;
    if (!answer.ids.empty()) request["first_id"] = answer.ids[0];
    out.add(request);
}

/// Adds rounds in order. `ids` are those of the whole answer or empty.
void add_steps(const std::string& name, const std::vector<int>& accepted, const std::vector<int>& drafted,
               const Answer& answer, RoundsSink& out) {
    std::int64_t left = answer.completion_tokens.value_or(0) - 1;
    std::size_t at = 1;
    for (std::size_t i = 0; i < accepted.size(); ++i) {
        Json round = {{"req", name}, {"i", i}, {"a", accepted[i]}};
        if (!drafted.empty()) round["d"] = drafted[i];
        // The last round may have accepted more than was emitted.
        const bool last = i + 1 == accepted.size();
        const std::int64_t count =
            last && answer.completion_tokens && left >= 1 && left <= accepted[i] ? left : accepted[i] + 1;
        round["c"] = count;
        if (at + count <= answer.ids.size())
            round["out"] = Json(std::vector<int>(answer.ids.begin() + at, answer.ids.begin() + at + count));
        // One chunk is one round, unless chunks were merged.
        if (answer.times.size() == accepted.size() + 1) {
            round["t0"] = answer.times[i];
            round["dt"] = answer.times[i + 1] - answer.times[i];
        }
        if (last && !answer.end.empty()) round["end"] = answer.end;
        left -= count;
        at += count;
        out.add(round);
    }
}

/// The steps of a stream, of which the server lists only those with drafts.
struct Steps {
    std::vector<int> accepted, drafted;  ///< by chunk after the prefill's
    bool guessed = false;                ///< which of several rounds without accepted drafts had drafts
};

/// Lays the listed steps over the chunks, whose ids are one more than the accepted ones. Only the last chunk
/// may have fewer, as an answer ends within it. Absent if they do not fit.
std::optional<Steps> lay_over_chunks(const std::vector<int>& accepted, const std::vector<int>& drafted,
                                     const std::vector<std::vector<int>>& chunks) {
    Steps out;
    std::size_t next = 0;
    bool with = false, without = false;  // of the rounds since the last accepted draft
    for (std::size_t i = 1; i < chunks.size(); ++i) {
        const int count = static_cast<int>(chunks[i].size()) - 1;
        const bool cut = i + 1 == chunks.size() && next < accepted.size() && accepted[next] > count;
        const bool listed = next < accepted.size() && (cut || accepted[next] == count);
        if (!listed && count > 0) return std::nullopt;
        (listed ? with : without) = true;
        out.guessed |= with && without && count == 0 && !cut;
        if (count > 0) with = without = false;
        out.accepted.push_back(listed ? accepted[next] : 0);
        out.drafted.push_back(listed ? drafted[next] : 0);
        next += listed ? 1 : 0;
    }
    return next == accepted.size() ? std::optional(out) : std::nullopt;
}

void add_answer(const Answer& answer, RoundsSink& out) {
    RoundFields fields(answer.metrics);
    const auto accepted = fields.integers("per_step_accepted"), drafted = fields.integers("per_step_drafted");
    const auto histogram = fields.integers("acceptance_histogram");
    const auto length = fields.integer("num_spec_tokens");
    const auto all_drafted = fields.integer("num_draft_tokens"), steps = fields.integer("num_spec_steps");
    if (accepted && drafted && accepted->size() != drafted->size())
        fields.refuse("per_step_drafted", "its length is not that of per_step_accepted");
    if (histogram && steps && std::accumulate(histogram->begin(), histogram->end(), 0LL) != *steps)
        fields.refuse("acceptance_histogram", fmt::format("does not add up to num_spec_steps, {}", *steps));
    if (!fields.problem().empty()) return out.refuse(fields.problem());
    Json header = make_header("vllm", answer.chunks.empty() ? "response" : "stream", answer.model);
    header.update({{"first_token", "prefill"}, {"a_unclipped", true}});
    if (length) header["k"] = *length;
    if (!answer.times.empty()) header["clock"] = "client";
    out.add(header);
    const std::string name = out.next_request();
    add_request(name, answer, out);
    if (accepted && drafted && answer.chunks.size() > 1) {
        if (const auto laid = lay_over_chunks(*accepted, *drafted, answer.chunks)) {
            if (laid->guessed)
                out.note(
                    "which rounds without an accepted draft had drafts is not said; the first of each row of "
                    "them are taken");
            return add_steps(name, laid->accepted, laid->drafted, answer, out);
        }
    }
    std::int64_t emitted = 0;  // by the listed steps
    if (accepted) emitted = std::accumulate(accepted->begin(), accepted->end(), std::ssize(*accepted));
    const std::int64_t missing = answer.completion_tokens.value_or(0) - 1 - emitted;
    if (accepted && missing <= 0)
        return add_steps(name, *accepted, drafted.value_or(std::vector<int>()), answer, out);
    if (answer.chunks.size() > 1) {
        std::vector<int> counts;
        for (std::size_t i = 1; i < answer.chunks.size(); ++i)
            counts.push_back(static_cast<int>(answer.chunks[i].size()) - 1);
        const auto longest = *std::max_element(counts.begin(), counts.end());
        if (length && longest > *length)
            out.note(fmt::format("a chunk has {} ids, more than {} drafts and one: chunks were merged",
                                 longest + 1, *length));
        Answer unclipped = answer;
        unclipped.completion_tokens.reset();
        return add_steps(name, counts, {}, unclipped, out);
    }
    if (accepted) {
        out.note(
            fmt::format("the steps make {} of {} tokens: {} rounds without a draft are not listed, so the "
                        "order is not known",
                        emitted + 1, *answer.completion_tokens, missing));
        for (std::size_t i = 0; i < accepted->size(); ++i)
            out.add({{"req", name}, {"a", (*accepted)[i]}, {"d", drafted ? Json((*drafted)[i]) : Json()}});
        return out.add({{"req", name}, {"n", missing}, {"a", 0}, {"d", 0}});
    }
    if (histogram) add_histogram(name, *histogram, all_drafted, out);
}

/// Reads what an answer and a chunk have in common.
void describe(const Json& from, Answer& answer, RoundsSink& out) {
    RoundFields fields(from);
    if (const std::string model = fields.text("model"); !model.empty()) answer.model = model;
    if (const auto count = fields.integer("usage.prompt_tokens")) answer.prompt_tokens = count;
    if (const auto count = fields.integer("usage.completion_tokens", 1)) answer.completion_tokens = count;
    if (const auto ids = fields.integers("prompt_token_ids")) answer.prompt = *ids;
    if (const Json* metrics = fields.find("metrics.speculative_decoding")) answer.metrics = *metrics;
    if (const Json* first = fields.first_choice(); first != nullptr) {
        RoundFields choice(*first);
        if (const auto ids = choice.integers("prompt_token_ids")) answer.prompt = *ids;
        if (const auto ids = choice.integers("token_ids"); ids && !ids->empty()) {
            answer.ids.insert(answer.ids.end(), ids->begin(), ids->end());
            answer.chunks.push_back(*ids);
        }
        if (const std::string end = choice.text("finish_reason"); !end.empty()) answer.end = end;
        if (!choice.problem().empty()) out.refuse("choices[0]: " + choice.problem());
    }
    if (!fields.problem().empty()) out.refuse(fields.problem());
}

void convert_vllm_answer(const Json& value, RoundsSink& out) {
    Answer answer;
    describe(value, answer, out);
    answer.chunks.clear();
    if (answer.metrics.is_null())
        return out.refuse(
            "field metrics.speculative_decoding: missing; start the server with "
            "--per-request-spec-decode-metrics detailed");
    add_answer(answer, out);
}

/// One chunk is one round, because the server sends what a step committed.
class VllmStream : public StreamReader {
  public:
    void event(const Json& chunk, RoundsSink& out) override {
        const std::string id = RoundFields(chunk).text("id");
        if (id != id_) finish(out);
        id_ = id;
        const std::size_t chunks = answer_.chunks.size();
        describe(chunk, answer_, out);
        if (arrival_ && answer_.chunks.size() > chunks) answer_.times.push_back(*arrival_);
    }
    void finish(RoundsSink& out) override {
        Answer answer = std::exchange(answer_, Answer());
        if (answer.chunks.empty()) return;
        if (answer.metrics.is_null()) answer.metrics = Json::object();
        add_answer(answer, out);
    }

  private:
    std::string id_;
    Answer answer_;
};

/// Each line `SpecDecoding metrics` has the sums of an interval and rates of three decimals.
class VllmLog : public RoundsReader {
  public:
    void read(std::string_view line, RoundsSink& out) override {
        static const std::regex pattern(
            R"(SpecDecoding metrics: Mean acceptance length: ([\d.]+).*Accepted: (\d{1,9}) tokens, Drafted: (\d{1,9}) tokens, Per-position acceptance rate: ([\d., ]+))");
        std::match_results<std::string_view::const_iterator> match;
        if (line.find("SpecDecoding metrics:") == line.npos) return;
        if (!std::regex_search(line.begin(), line.end(), match, pattern))
            return out.refuse("SpecDecoding metrics: in no known form");
        const double mean = leading_number(match.str(1)).value_or(0);
        const auto accepted = static_cast<std::int64_t>(*leading_number(match.str(2)));
        const auto drafted = static_cast<std::int64_t>(*leading_number(match.str(3)));
        std::vector<double> rates;
        for (std::string rest = match.str(4); const auto rate = leading_number(rest);) {
            rates.push_back(*rate);
            rest.erase(0, std::min(rest.find(','), rest.size() - 1) + 1);
        }
        if (name_.empty()) {
            Json header = make_header("vllm", "log", "");
            header.update({{"k", rates.size()}, {"a_unclipped", true}});
            out.add(header);
            name_ = out.next_request();
        }
        add_interval(mean, accepted, drafted, rates, out);
    }

  private:
    void add_interval(double mean, std::int64_t accepted, std::int64_t drafted,
                      const std::vector<double>& rates, RoundsSink& out) {
        const auto length = static_cast<std::int64_t>(rates.size());
        std::int64_t rounds = length > 0 && drafted % length == 0 ? drafted / length : 0;
        const auto mean_of = [&](std::int64_t n) {
            return 1 + static_cast<double>(accepted) / static_cast<double>(n);
        };
        if (rounds == 0 || std::abs(mean_of(rounds) - mean) > 0.0051)
            rounds = mean > 1 ? std::llround(static_cast<double>(accepted) / (mean - 1)) : 0;
        if (rounds <= 0) return out.refuse("the number of rounds does not follow from the line");
        std::vector<int> reached = {static_cast<int>(rounds)};
        for (const double rate : rates)
            reached.push_back(static_cast<int>(std::llround(rate * static_cast<double>(rounds))));
        std::vector<int> histogram;
        for (std::size_t i = 0; i < reached.size(); ++i)
            histogram.push_back(reached[i] - (i + 1 < reached.size() ? reached[i + 1] : 0));
        const bool adds_up =
            std::accumulate(reached.begin() + 1, reached.end(), std::int64_t{0}) == accepted &&
            *std::min_element(histogram.begin(), histogram.end()) >= 0;
        if (adds_up) return add_histogram(name_, histogram, drafted, out);
        out.note("the rates do not add up to the accepted tokens; only the sums are kept");
        out.add({{"req", name_}, {"n", rounds}, {"a_sum", accepted}, {"d_sum", drafted}});
    }

    std::string name_;
};

}  // namespace

std::unique_ptr<RoundsReader> make_vllm_answer_reader() {
    return std::make_unique<AnswerReader>(convert_vllm_answer);
}
std::unique_ptr<RoundsReader> make_vllm_stream_reader() {
    return std::make_unique<VllmStream>();
}
std::unique_ptr<RoundsReader> make_vllm_log_reader() {
    return std::make_unique<VllmLog>();
}

}  // namespace draftscope::storage
