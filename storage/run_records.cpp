#include "storage/run_records.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <unordered_map>
#include <utility>

#include "storage/capture_file.h"
#include "storage/record_ids.h"

namespace draftscope {
namespace {

/// Calls `visit(start, end)` with the times of a row, and `visit(time, time)` for a moment.
template <typename Row, typename Visit>
void visit_times(Row& row, Visit& visit) {
    if constexpr (requires { row.start_ns; })
        visit(row.start_ns, row.end_ns);
    else if constexpr (requires { row.time_ns; })
        visit(row.time_ns, row.time_ns);
}

template <typename Visit>
void visit_record_times(Record& record, Visit visit) {
    if (auto* step = std::get_if<StepRecord>(&record)) {
        visit_times(step->step, visit);
        for (RoundRecord& round : step->rounds) visit_times(round.round, visit);
        for (SpanRow& span : step->spans) visit_times(span, visit);
    } else if (auto* late = std::get_if<SpansRecorded>(&record)) {
        for (SpanRow& span : late->spans) visit_times(span, visit);
    }
}

/// Distributes the records of a file over its runs.
class RunCollector : public RecordSink {
  public:
    explicit RunCollector(const std::string& path) : path_(path) {}
    std::vector<RunRecords> take() { return std::move(runs_); }

    void push(Record record) override {
        std::visit([this](auto& one) { add(one); }, record);
    }

  private:
    RunRecords& run(RowId id) { return runs_[places_.at(id)]; }

    void add(RunStarted& started) {
        places_[started.run.id] = runs_.size();
        runs_.emplace_back();
        runs_.back().file = path_;
        runs_.back().started = std::move(started);
    }
    void add(RunEnded& ended) {
        run(ended.run_id).ended = ended.how;
        run(ended.run_id).end_ns = ended.end_ns;
    }
    void add(PromptStarted& one) {
        run_of_prompt_[one.prompt.id] = one.prompt.run_id;
        run(one.prompt.run_id).steps.push_back(std::move(one));
    }
    void add(PromptProgress& one) { run(run_of_prompt_.at(one.prompt_id)).steps.push_back(std::move(one)); }
    void add(StepRecord& one) { run(one.step.run_id).steps.push_back(std::move(one)); }
    void add(SpansRecorded& late) {
        std::map<RowId, SpansRecorded> split;
        for (SpanRow& span : late.spans) split[span.run_id].spans.push_back(span);
        for (auto& [id, one] : split) run(id).steps.push_back(std::move(one));
    }
    void add(HeadEvaluated& late) {
        std::map<RowId, HeadEvaluated> split;
        for (HeadEvalRow& row : late.rows) split[row.run_id].rows.push_back(std::move(row));
        for (auto& [id, one] : split) run(id).steps.push_back(std::move(one));
    }
    void add(PromptEnded&) {}  // a file's first reading has the final prompts
    void add(LiveRound&) {}
    template <typename Row>
    void add(std::vector<Row>& rows) {
        for (Row& row : rows) add(row);
    }
    template <typename Row>
    void add(Row& row) {
        std::get<std::vector<Row>>(run(row.run_id).rows).push_back(std::move(row));
    }

    const std::string& path_;
    std::vector<RunRecords> runs_;
    std::map<RowId, std::size_t> places_;
    std::unordered_map<RowId, RowId> run_of_prompt_;
};

int conversation_of(const PromptRow& prompt) {
    return prompt.ordinal - prompt.turn;
}

/// Returns the conversation of each prompt, as the ordinal of its first turn.
std::unordered_map<RowId, int> conversations_of(const std::vector<PromptRow>& prompts) {
    std::unordered_map<RowId, int> out;
    for (const PromptRow& prompt : prompts) out[prompt.id] = conversation_of(prompt);
    return out;
}

/// One part of a joined run, and how far it was pushed.
struct Part {
    static constexpr int no_key = std::numeric_limits<int>::max();

    explicit Part(RunRecords records) : run(std::move(records)) {
        const auto conversations = conversations_of(run.prompts());
        keys.assign(run.steps.size(), no_key);
        for (std::size_t i = 0; i < run.steps.size(); ++i) {
            int& key = keys[i];
            if (const auto* started = std::get_if<PromptStarted>(&run.steps[i]))
                key = conversation_of(started->prompt);
            if (const auto* step = std::get_if<StepRecord>(&run.steps[i]))
                for (const RoundRecord& round : step->rounds)
                    key = std::min(key, conversations.at(round.round.prompt_id));
        }
        // Conversations begin in order. A record goes before the first step that has an earlier conversation.
        for (std::size_t i = keys.size(); i-- > 1;) keys[i - 1] = std::min(keys[i - 1], keys[i]);
    }

    bool ended() const { return next == run.steps.size(); }
    int key() const { return ended() ? no_key : keys[next]; }

    /// Returns what to add to a time of this part.
    TimeNs shift(TimeNs time) const {
        auto after = std::upper_bound(shifts.begin(), shifts.end(), time,
                                      [](TimeNs t, const auto& piece) { return t < piece.first; });
        if (after != shifts.begin()) --after;
        return after == shifts.end() ? 0 : after->second;
    }
    RowId& new_id(RowId id, RowId RowIds::*counter) {
        static constexpr std::array counters = {&RowIds::run,   &RowIds::prompt, &RowIds::step,
                                                &RowIds::round, &RowIds::span,   &RowIds::gpu_op};
        return new_ids[std::find(counters.begin(), counters.end(), counter) - counters.begin()][id];
    }

    RunRecords run;
    std::vector<int> keys;  ///< of each record of run.steps, ascending: the first conversation in it
    std::size_t next = 0;
    TimeNs pushed_ns = 0;                           ///< the part's time up to which its records were pushed
    std::vector<std::pair<TimeNs, TimeNs>> shifts;  ///< the start of each piece, and what its times gain
    std::array<std::unordered_map<RowId, RowId>, 6> new_ids;
};

class Joiner {
  public:
    Joiner(std::vector<RunRecords> parts, RowId run_id, RowIds& ids, RecordSink& out)
        : run_id_(run_id), ids_(ids), out_(out) {
        for (RunRecords& one : parts) parts_.emplace_back(std::move(one));
    }

    TimeNs run() {
        for (;;) {
            const auto first =
                std::min_element(parts_.begin(), parts_.end(), [](const Part& a, const Part& b) {
                    return std::pair(a.ended(), a.key()) < std::pair(b.ended(), b.key());
                });
            if (first == parts_.end() || first->ended()) break;
            push_piece(*first);
        }
        std::apply([this](const auto&... rows) { (push_rows(rows), ...); }, decltype(RunRecords::rows)());
        return clock_;
    }

  private:
    /// Pushes the part's records up to the next conversation.
    void push_piece(Part& part) {
        const std::size_t begin = part.next;
        const int key = part.key();
        while (!part.ended() && part.key() == key) ++part.next;
        TimeNs end = part.pushed_ns;
        for (std::size_t i = begin; i < part.next; ++i)
            visit_record_times(part.run.steps[i], [&](TimeNs, TimeNs last) { end = std::max(end, last); });
        if (part.ended()) end = std::max(end, part.run.end_ns);
        part.shifts.emplace_back(part.pushed_ns, clock_ - part.pushed_ns);
        clock_ += end - part.pushed_ns;
        part.pushed_ns = end;
        for (std::size_t i = begin; i < part.next; ++i) push_record(part, std::move(part.run.steps[i]));
    }

    void push_record(Part& part, Record record) {
        visit_record_times(record, [&](TimeNs& start, TimeNs& end) { shift_times(part, start, end); });
        storage::visit_ids(record, [&](RowId& id, RowId RowIds::*kind) { renumber(part, id, kind); });
        if (auto* step = std::get_if<StepRecord>(&record)) step->step.ordinal = steps_++;
        out_.push(std::move(record));
    }

    static void shift_times(const Part& part, TimeNs& start, TimeNs& end) {
        const TimeNs gain = part.shift(start);
        start += gain;
        if (&end != &start) end += gain;
    }

    void renumber(Part& part, RowId& id, RowId RowIds::*kind) {
        if (id == 0) return;
        RowId& known = part.new_id(id, kind);
        if (known == 0) known = kind == &RowIds::run ? run_id_ : ++(ids_.*kind);
        id = known;
    }

    /// Pushes the rows of one table, in the order of their times.
    template <typename Row>
    void push_rows(const std::vector<Row>&) {
        std::vector<Row> all;
        for (Part& part : parts_)
            for (Row& row : std::get<std::vector<Row>>(part.run.rows)) {
                auto shift = [&](TimeNs& start, TimeNs& end) { shift_times(part, start, end); };
                visit_times(row, shift);
                storage::visit_ids(row, [&](RowId& id, RowId RowIds::*kind) { renumber(part, id, kind); });
                all.push_back(std::move(row));
            }
        const auto time = [](const Row& row) {
            TimeNs first = 0;
            auto take = [&](const TimeNs& start, const TimeNs&) { first = start; };
            visit_times(row, take);
            return first;
        };
        std::stable_sort(all.begin(), all.end(),
                         [&](const Row& a, const Row& b) { return time(a) < time(b); });
        if constexpr (std::is_same_v<Row, GpuOpRow>) {
            RowId first = ids_.gpu_op - static_cast<RowId>(all.size());
            for (Row& row : all) row.id = ++first;
        }
        if (all.empty()) return;
        if constexpr (std::is_constructible_v<Record, std::vector<Row>>)
            out_.push(std::move(all));
        else
            for (Row& row : all) out_.push(std::move(row));
    }

    RowId run_id_;
    RowIds& ids_;
    RecordSink& out_;
    std::vector<Part> parts_;
    TimeNs clock_ = 0;
    int steps_ = 0;
};

}  // namespace

std::vector<PromptRow> RunRecords::prompts() const {
    std::vector<PromptRow> out;
    for (const Record& record : steps)
        if (const auto* begun = std::get_if<PromptStarted>(&record)) out.push_back(begun->prompt);
    return out;
}

void RunRecords::keep_conversations(const std::set<int>& first_ordinals) {
    const auto conversations = conversations_of(prompts());
    const auto kept = [&](RowId prompt) { return first_ordinals.contains(conversations.at(prompt)); };
    std::set<RowId> gone_steps, gone_rounds;
    const auto is_gone = [&](const auto& row) {
        if constexpr (requires { row.step_id; })
            if (gone_steps.contains(row.step_id)) return true;
        if constexpr (requires { row.round_id; })
            if (gone_rounds.contains(row.round_id)) return true;
        return false;
    };
    end_ns = 0;
    std::erase_if(steps, [&](Record& record) {
        if (const auto* begun = std::get_if<PromptStarted>(&record)) return !kept(begun->prompt.id);
        if (const auto* progress = std::get_if<PromptProgress>(&record)) return !kept(progress->prompt_id);
        if (auto* step = std::get_if<StepRecord>(&record)) {
            std::erase_if(step->rounds, [&](const RoundRecord& round) {
                if (kept(round.round.prompt_id)) return false;
                gone_rounds.insert(round.round.id);
                return true;
            });
            if (step->rounds.empty()) {
                gone_steps.insert(step->step.id);
                return true;
            }
            std::erase_if(step->spans, is_gone);
            end_ns = std::max(end_ns, step->step.end_ns);
        }
        if (auto* late = std::get_if<SpansRecorded>(&record)) {
            std::erase_if(late->spans, is_gone);
            return late->spans.empty();
        }
        if (auto* late = std::get_if<HeadEvaluated>(&record)) {
            std::erase_if(late->rows, is_gone);
            return late->rows.empty();
        }
        return false;
    });
    // The prefill of a conversation that is gone belongs to no step.
    for (Record& record : steps)
        if (auto* late = std::get_if<SpansRecorded>(&record))
            std::erase_if(late->spans, [&](const SpanRow& span) { return span.start_ns > end_ns; });
    for (Record& record : steps)
        visit_record_times(record, [&](TimeNs, TimeNs last) { end_ns = std::max(end_ns, last); });
    const auto erase = [&](auto& table) {
        std::erase_if(table, [&](const auto& row) {
            using Row = std::decay_t<decltype(row)>;
            TimeNs first = 0;
            auto take = [&](const TimeNs& start, const TimeNs&) { first = start; };
            visit_times(row, take);
            return is_gone(row) || (first > end_ns && !std::is_same_v<Row, LossRow>);
        });
    };
    std::apply([&](auto&... tables) { (erase(tables), ...); }, rows);
}

Result<std::vector<RunRecords>> read_run_records(const std::string& path) {
    RunCollector collector(path);
    DS_TRY(read_capture(path, collector));
    return collector.take();
}

TimeNs push_joined(std::vector<RunRecords> parts, RowId run_id, RowIds& ids, RecordSink& out) {
    return Joiner(std::move(parts), run_id, ids, out).run();
}

}  // namespace draftscope
