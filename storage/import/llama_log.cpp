// The log of llama.cpp's server. With `-lv 99` it has the drafter's three best tokens at each position; at
// the default level the accepted and drafted tokens of a round.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <regex>

#include "base/parse.h"
#include "storage/import/round_readers.h"

namespace draftscope::storage {

namespace {

using Match = std::match_results<std::string_view::const_iterator>;

bool search(std::string_view line, Match& match, const std::regex& pattern) {
    return std::regex_search(line.begin(), line.end(), match, pattern);
}
std::int64_t number(const Match& match, std::size_t group) {
    return parse_number<std::int64_t>(std::string_view(match[group].first, match[group].second)).value_or(0);
}

/// Returns the time of "0.08.574.009 ..." (minutes, seconds, ms, us) in ns; absent without one.
std::optional<std::int64_t> time_of(std::string_view line) {
    static const std::regex pattern(R"(^(\d{1,6})\.(\d\d)\.(\d\d\d)\.(\d\d\d) )");
    Match match;
    if (!search(line.substr(0, 24), match, pattern)) return std::nullopt;
    const std::int64_t seconds = number(match, 1) * 60 + number(match, 2);
    return seconds * ns_per_s + number(match, 3) * ns_per_ms + number(match, 4) * 1000;
}

/// A slot's request and its round so far.
struct Slot {
    std::string request;
    std::vector<Json> best;  ///< by position: pairs of id and log-probability
    Json round = Json::object();
    std::int64_t rounds = 0, drafted = 0, accepted = 0, tokens = 0;
    std::optional<std::int64_t> last;  ///< time of its last output
    bool has_new_round = false;        ///< the line `accepted a/d` repeats the last round
    bool replay = false;               ///< the next round verifies accepted tokens again
    bool sums_only = false;            ///< the log has no rounds of it
};

class LlamaLog : public RoundsReader {
  public:
    void read(std::string_view line, RoundsSink& out) override {
        static const std::regex drafter("adding speculative implementation '([^']+)'");
        static const std::regex limit(R"(n_max=(\d{1,6}))");
        static const std::regex candidate(
            R"(seq_id (\d{1,6}), draft candidate +\d+, pos +(\d{1,4}): +(\d{1,9}) \( *([\d.]+)\))");
        static const std::regex task(R"(\bid +(\d{1,6}) \| task (\d{1,12}) \| (.*))");
        Match match;
        if (line.find("speculative implementation") != line.npos && search(line, match, drafter)) {
            drafter_ = match.str(1);
        } else if (k_ == 0 && line.find("n_max=") != line.npos && search(line, match, limit)) {
            k_ = number(match, 1);
        } else if (line.find("draft candidate") != line.npos && search(line, match, candidate)) {
            add_candidate(slots_[number(match, 1)], number(match, 2), number(match, 3), match.str(4));
        } else if (line.find("| task ") != line.npos && search(line, match, task)) {
            Slot& slot = slots_[number(match, 1)];
            const std::string request = match.str(2);
            if (slot.request != request) {
                Slot next;
                next.request = request;
                next.best = std::move(slot.best);
                slot = std::move(next);
            }
            const std::size_t from = match.position(3);
            read_slot(line.substr(from), time_of(line), slot, out);
        }
    }
    void finish(RoundsSink& out) override { begin(out); }

  private:
    void begin(RoundsSink& out) {
        if (std::exchange(begun_, true)) return;
        Json header = make_header("llama.cpp", "log", "");
        header.update({{"first_token", "prefill"}, {"clock", "log"}});
        if (!drafter_.empty()) header["drafter"] = drafter_;
        if (k_ > 0) header["k"] = k_;
        out.add(header);
    }

    static void add_candidate(Slot& slot, std::int64_t position, std::int64_t id, const std::string& p) {
        slot.best.resize(std::max<std::size_t>(slot.best.size(), position + 1), Json::array());
        const double probability = leading_number(p).value_or(0);
        // Printed to three digits: 0.000 is less than half a thousandth.
        slot.best[position].push_back({id, std::log(std::max(probability, 0.0005))});
    }

    void read_slot(std::string_view text, std::optional<std::int64_t> time, Slot& slot, RoundsSink& out) {
        static const std::regex prompt(R"(task\.n_tokens = (\d{1,9}))");
        static const std::regex token(R"(n_gen = (\d{1,9}), .*next token: +(\d{1,9}))");
        static const std::regex draft(R"(generate_draft: id=\d+, #tokens=(\d{1,9}), #draft=(\d{1,4}))");
        static const std::regex added(R"(add accepted tokens: sampled=(\d{1,9}), ids\.size=(\d{1,4}))");
        static const std::regex accepted(
            R"(accepted +(\d{1,4})/ *(\d{1,4}) draft tokens(.*restore checkpoint)?)");
        static const std::regex total(
            R"(draft acceptance.*\( *(\d{1,9}) accepted / *(\d{1,9}) generated\)(?:.*mean (?:len|acceptance length) = +([\d.]+))?)");
        Match match;
        if (search(text, match, prompt)) {
            begin(out);
            out.add({{"req", slot.request}, {"prompt_tokens", number(match, 1)}});
        } else if (search(text, match, token)) {
            add_token(slot, number(match, 1), number(match, 2), time, out);
        } else if (search(text, match, draft)) {
            slot.round = {{"ctx", number(match, 1) + 1}, {"d", number(match, 2)}};
        } else if (search(text, match, added)) {
            const std::int64_t count = number(match, 2);
            if (count < 1) return out.refuse("ids.size=0");
            slot.round["c"] = count;
            add_round(slot, count - 1, number(match, 1), time, out);
            slot.has_new_round = true;
        } else if (search(text, match, accepted)) {
            if (std::exchange(slot.has_new_round, false)) return;
            slot.round["d"] = number(match, 2);
            add_round(slot, number(match, 1), std::nullopt, time, out);
            slot.replay = match[3].matched;
        } else if (search(text, match, total)) {
            check_total(slot, match, out);
        }
    }

    /// Adds the first token, or a round without drafts: it has no other line.
    void add_token(Slot& slot, std::int64_t count, std::int64_t id, std::optional<std::int64_t> time,
                   RoundsSink& out) {
        if (count == 1) {
            begin(out);
            out.add({{"req", slot.request}, {"first_id", id}});
            slot.tokens = 1;
            slot.last = time;
        } else if (slot.tokens > 0 && count == slot.tokens + 1) {
            slot.round = {{"d", 0}, {"c", 1}};
            add_round(slot, 0, id, time, out);
        }
    }

    void add_round(Slot& slot, std::int64_t accepted, std::optional<std::int64_t> last,
                   std::optional<std::int64_t> time, RoundsSink& out) {
        begin(out);
        Json round = std::exchange(slot.round, Json::object());
        round.update({{"req", slot.request}, {"i", slot.rounds}, {"a", accepted}});
        const auto drafted = round.value("d", std::int64_t{-1});
        const auto complete = std::min<std::ptrdiff_t>(drafted, std::ssize(slot.best));
        const bool known = drafted > 0 && complete == drafted &&
                           std::none_of(slot.best.begin(), slot.best.begin() + complete,
                                        [](const Json& best) { return best.empty(); });
        if (known)
            add_draft(slot, drafted, accepted, last, round);
        else if (drafted == 0 && last)
            round["out"] = {*last};
        if (time && slot.last)
            round.update({{"t0", *slot.last}, {"dt", std::max<std::int64_t>(*time - *slot.last, 0)}});
        slot.best.clear();
        slot.last = time;
        if (std::exchange(slot.replay, false)) {
            round["replay"] = true;
        } else {
            ++slot.rounds;
            slot.accepted += accepted;
            slot.drafted += std::max<std::int64_t>(drafted, 0);
        }
        slot.tokens += accepted + 1;
        out.add(round);
    }

    /// The first candidate of a position is the draft.
    static void add_draft(const Slot& slot, std::int64_t drafted, std::int64_t accepted,
                          std::optional<std::int64_t> last, Json& round) {
        for (std::int64_t i = 0; i < drafted; ++i) {
            round["draft"].push_back(slot.best[i][0][0]);
            round["lp"].push_back(slot.best[i][0][1]);
        }
        round["top"] = slot.best;
        if (!last || accepted > drafted) return;
        round["out"] = Json(round["draft"].begin(), round["draft"].begin() + accepted);
        round["out"].push_back(*last);
    }

    /// Compares the request's sums with its rounds. A log without rounds has the sums alone.
    void check_total(Slot& slot, const Match& match, RoundsSink& out) {
        begin(out);
        const std::int64_t accepted = number(match, 1), drafted = number(match, 2);
        if (slot.rounds > 0 && (slot.accepted != accepted || slot.drafted != drafted))
            return out.note(
                fmt::format("task {}: {} of {} drafts were accepted, but its rounds have {} of {}",
                            slot.request, accepted, drafted, slot.accepted, slot.drafted));
        const double mean = match[3].matched ? leading_number(match.str(3)).value_or(1) : 1;
        if (slot.rounds > 0 || mean <= 1) return;
        const std::int64_t rounds = std::llround(static_cast<double>(accepted) / (mean - 1));
        out.note(fmt::format("task {}: its {} rounds follow from a mean length of two decimals", slot.request,
                             rounds));
        out.add({{"req", slot.request}, {"n", rounds}, {"a_sum", accepted}, {"d_sum", drafted}});
    }

    std::map<std::int64_t, Slot> slots_;
    std::string drafter_;
    std::int64_t k_ = 0;
    bool begun_ = false;
};

}  // namespace

std::unique_ptr<RoundsReader> make_llama_log_reader() {
    return std::make_unique<LlamaLog>();
}

}  // namespace draftscope::storage
