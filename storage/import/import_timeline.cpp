#include "storage/import/import_timeline.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "base/phase_names.h"
#include "base/units.h"

namespace draftscope {

namespace {

/// Names of a phase in other engines, each between blanks; the phases' own names are tried first.
struct Synonyms {
    std::string_view phase, names;
};
constexpr Synonyms synonyms[] = {
    {"prefill", " prompt "},
    {"backbone", " draft drafter draft_forward draft_model propose speculator "},
    {"head", " lm_head lmhead draft_head compute_logits "},
    {"topk", " top_k top-k select_top_k "},
    {"softmax", " log_softmax "},
    {"rerank", " build_tree tree "},
    {"verify", " verification target target_forward target_verify "},
    {"accept", " acceptance rejection_sampler rejection_sample sample sampling "},
    {"commit", " kv_compaction compact_kv "},
};

std::string lower(std::string_view text) {
    std::string out(text);
    for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return out;
}

/// Converts "Draft/Head #12" to "head": lower case, last component, no trailing number.
std::string last_part(std::string_view name) {
    std::string text = lower(name);
    const auto trim = [&] {
        while (!text.empty() &&
               std::string_view("0123456789# _:=[]()").find(text.back()) != std::string_view::npos)
            text.pop_back();
    };
    trim();
    const std::size_t at = text.find_last_of("/.:> ");
    if (at != std::string::npos) text.erase(0, at + 1);
    return text;
}

std::optional<int> find_phase_id(std::string_view name) {
    for (const PhaseRow& row : phase_rows)
        if (row.id != 0 && row.id != remainder_phase_id && row.name == name) return row.id;
    return std::nullopt;
}

}  // namespace

std::optional<int> phase_for_range_name(std::string_view name) {
    // PyTorch's operators are parts of a phase, whatever their names.
    if (name.starts_with("aten::")) return std::nullopt;
    const std::string text = last_part(name);
    if (const auto own = find_phase_id(text)) return own;
    const std::string name_between_blanks = " " + text + " ";
    for (const Synonyms& one : synonyms)
        if (one.names.find(name_between_blanks) != one.names.npos) return find_phase_id(one.phase);
    return std::nullopt;
}

bool is_step_range_name(std::string_view name) {
    const std::string text = last_part(name);
    return text == "step" || text == "decode_step" || text == "profilerstep" || text == "spec_step";
}

TimelineFormat detect_timeline_format(const std::string& path) {
    std::error_code error;
    if (!std::filesystem::is_regular_file(path, error)) return TimelineFormat::none;
    gzFile file = gzopen(path.c_str(), "rb");
    if (file == nullptr) return TimelineFormat::none;
    std::array<char, 4096> bytes{};
    const int count = gzread(file, bytes.data(), static_cast<unsigned>(bytes.size()));
    gzclose(file);
    const std::string_view head(bytes.data(), std::max(count, 0));
    // Captures are SQLite files, too; byte 68 holds their application id.
    if (head.starts_with(std::string_view("SQLite format 3\0", 16)))
        return head.size() > 72 && head.substr(68, 4) == "DSCP" ? TimelineFormat::none : TimelineFormat::nsys;
    for (const std::string_view magic :
         {std::string_view("\x28\xB5\x2F\xFD"), std::string_view("PK\x03\x04"), std::string_view("BZh"),
          std::string_view("\xFD"
                           "7zXZ")})
        if (head.starts_with(magic)) return TimelineFormat::packed;
    // A packet of a trace begins with its tag, which is a line feed, its length and the tag of a field.
    const bool is_text =
        std::ranges::all_of(head.substr(0, 16), [](char c) { return c >= ' ' || (c >= '\t' && c <= '\r'); });
    if ((head.starts_with('\n') && !is_text) || path.ends_with(".pftrace") ||
        path.ends_with(".perfetto-trace"))
        return TimelineFormat::perfetto;
    const std::size_t first = head.find_first_not_of(" \t\r\n\xEF\xBB\xBF");
    if (first != std::string_view::npos && (head[first] == '{' || head[first] == '['))
        return TimelineFormat::kineto;
    return path.ends_with(".nsys-rep") || path.ends_with(".qdrep") ? TimelineFormat::nsys_rep
                                                                   : TimelineFormat::none;
}

Result<std::shared_ptr<const Snapshot>> import_timeline(const std::string& path) {
    switch (detect_timeline_format(path)) {
        case TimelineFormat::nsys: {
            DS_ASSIGN(storage::ImportedTimeline trace, storage::read_nsys(path));
            return storage::make_snapshot(path, std::move(trace));
        }
        case TimelineFormat::kineto: {
            DS_ASSIGN(storage::ImportedTimeline trace, storage::read_kineto(path));
            return storage::make_snapshot(path, std::move(trace));
        }
        case TimelineFormat::nsys_rep:
            return bad_input(
                "{}: a binary Nsight Systems report; convert it first: nsys export --type sqlite {}", path,
                path);
        case TimelineFormat::perfetto:
            return bad_input("{}: a binary Perfetto trace; convert it first: traceconv json {} trace.json",
                             path, path);
        case TimelineFormat::packed:
            return bad_input(
                "{}: compressed with zstd, xz, bzip2 or zip; unpack it first (gzip is read as it is)", path);
        case TimelineFormat::none:
            break;
    }
    return bad_input(
        "{}: neither an Nsight Systems SQLite export nor a JSON trace of PyTorch's profiler or Chrome", path);
}

namespace storage {

namespace {

struct PhaseInterval {
    TimeNs start, end;
    int phase;
};

/// Nsight Systems combines machine, process and thread in one id; the system's thread id is the last 24 bits.
int thread_number(std::int64_t thread) {
    return static_cast<int>(thread & 0xFFFFFF);
}

/// Finds the innermost phase interval around a time, per thread or stream. Ranges of one thread nest.
class PhaseIntervals {
  public:
    void add(std::int64_t key, PhaseInterval interval) { by_key_[key].push_back(interval); }
    void sort() {
        for (auto& [key, list] : by_key_)
            std::stable_sort(list.begin(), list.end(), [](const PhaseInterval& a, const PhaseInterval& b) {
                return a.start != b.start ? a.start < b.start : a.end > b.end;
            });
    }
    int around(std::int64_t key, TimeNs time) const {
        const auto found = by_key_.find(key);
        if (found == by_key_.end()) return 0;
        const auto& list = found->second;
        auto at = std::upper_bound(list.begin(), list.end(), time,
                                   [](TimeNs t, const PhaseInterval& i) { return t < i.start; });
        // Phases nest a few levels deep, so an interval that covers the time is among the last that began.
        for (int examined = 0; at != list.begin() && examined < max_examined; ++examined) {
            --at;
            if (time <= at->end) return at->phase;
        }
        return 0;
    }

  private:
    static constexpr int max_examined = 256;
    std::map<std::int64_t, std::vector<PhaseInterval>> by_key_;
};

TimeNs first_time(const ImportedTimeline& trace) {
    TimeNs first = std::numeric_limits<TimeNs>::max();
    for (const auto& range : trace.ranges) first = std::min(first, range.start);
    for (const auto& call : trace.calls) first = std::min(first, call.start);
    for (const auto& op : trace.ops) first = std::min(first, op.row.start_ns);
    return first;
}

RunRow make_run(const std::string& path, const ImportedTimeline& trace) {
    RunRow run;
    run.id = 1;
    run.name = std::filesystem::path(path).filename().string();
    run.frontend = "import";
    run.target = run.name;
    run.ended = RunEnd::ok;
    run.tier = trace.ops.empty() ? "T0" : "T2";
    run.backend = trace.ops.empty() ? "cpu" : "cuda";
    const nlohmann::json config = {{"imported_from", trace.kind}, {"product", trace.product}, {"file", path}};
    run.config_json = config.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    run.machine_json = nlohmann::json({{"gpu", {{"name", trace.gpu}}}})
                           .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    return run;
}

/// Converts ranges named like a step to steps, and ranges named like a phase to spans of the enclosing step.
struct Ranges {
    std::vector<StepRow> steps;
    std::vector<SpanRow> spans;
    std::vector<NvtxRangeRow> others;
    PhaseIntervals phases;
};

RowId step_at(const std::vector<StepRow>& steps, TimeNs time) {
    const auto after = std::upper_bound(steps.begin(), steps.end(), time,
                                        [](TimeNs t, const StepRow& step) { return t < step.start_ns; });
    return after != steps.begin() && time <= std::prev(after)->end_ns ? std::prev(after)->id : 0;
}

Ranges sort_ranges(std::vector<ImportedTimeline::Range> ranges, TimeNs zero) {
    Ranges out;
    std::stable_sort(ranges.begin(), ranges.end(), [](const auto& a, const auto& b) {
        return a.start != b.start ? a.start < b.start : a.end > b.end;
    });
    for (const auto& range : ranges) {
        const bool apart = out.steps.empty() || range.start - zero >= out.steps.back().end_ns;
        if (!is_step_range_name(range.name) || !apart || range.end <= range.start) continue;
        const auto ordinal = static_cast<int>(out.steps.size());
        out.steps.push_back({ordinal + 1, 1, ordinal, range.start - zero, range.end - zero, 0, Excluded::no});
    }
    for (auto& range : ranges) {
        const std::optional<int> phase =
            range.end > range.start ? phase_for_range_name(range.name) : std::nullopt;
        if (!phase) {
            out.others.push_back({1, std::move(range.domain), std::move(range.name),
                                  thread_number(range.thread), range.start - zero, range.end - zero,
                                  range.payload});
            continue;
        }
        SpanRow span;
        span.id = static_cast<RowId>(out.spans.size()) + 1;
        span.run_id = 1;
        span.phase_id = *phase;
        span.thread_id = thread_number(range.thread);
        span.start_ns = range.start - zero;
        span.end_ns = range.end - zero;
        span.step_id = step_at(out.steps, span.start_ns);
        out.spans.push_back(span);
        out.phases.add(range.thread, {range.start, range.end, *phase});
    }
    out.phases.sort();
    return out;
}

}  // namespace

Result<std::shared_ptr<const Snapshot>> make_snapshot(const std::string& path, ImportedTimeline trace) {
    if (trace.ranges.empty() && trace.calls.empty() && trace.ops.empty())
        return bad_input("{}", trace.notes.empty()
                                   ? fmt::format("{}: the file has no ranges and no GPU work to show", path)
                                   : trace.notes.front() + "; nothing is left to show");
    const TimeNs zero = first_time(trace);
    Capture capture;
    capture.set_source(path);
    const TimeNs utc = trace.utc_ns != 0 ? saturating_sum(trace.utc_ns, zero) : 0;
    capture.apply(RunStarted{make_run(path, trace), nullptr, {1, 0, utc, std::nullopt}});
    Ranges ranges = sort_ranges(std::move(trace.ranges), zero);
    PhaseIntervals on_gpu;
    for (const auto& range : trace.gpu_ranges)
        if (const auto phase = phase_for_range_name(range.name))
            on_gpu.add(range.thread, {range.start, range.end, *phase});
    on_gpu.sort();

    std::map<std::int64_t, const ImportedTimeline::Call*> calls;
    for (const auto& call : trace.calls) calls.emplace(call.correlation, &call);
    std::vector<GpuOpRow> ops;
    TimeNs end = 0;
    std::stable_sort(trace.ops.begin(), trace.ops.end(),
                     [](const auto& a, const auto& b) { return a.row.start_ns < b.row.start_ns; });
    for (auto& op : trace.ops) {
        const auto call = calls.find(op.correlation);
        if (call != calls.end())
            op.row.phase_id = ranges.phases.around(call->second->thread, call->second->start);
        if (op.row.phase_id == 0) op.row.phase_id = on_gpu.around(op.row.stream, op.row.start_ns);
        const TimeNs launched = call != calls.end() ? call->second->start : op.row.start_ns;
        op.row.id = static_cast<RowId>(ops.size()) + 1;
        op.row.run_id = 1;
        op.row.step_id = step_at(ranges.steps, launched - zero);
        op.row.correlation_id = op.correlation & 0xFFFFFFFF;
        op.row.start_ns -= zero;
        op.row.end_ns -= zero;
        end = std::max(end, op.row.end_ns);
        ops.push_back(std::move(op.row));
    }
    for (const StepRow& step : ranges.steps) capture.apply(StepRecord{step, {}, {}});
    for (const SpanRow& span : ranges.spans) end = std::max(end, span.end_ns);
    for (const auto& call : trace.calls)
        ranges.others.push_back({1, "CUDA API", call.name, thread_number(call.thread), call.start - zero,
                                 call.end - zero, call.correlation & 0xFFFFFFFF});
    for (const NvtxRangeRow& range : ranges.others) end = std::max(end, range.end_ns);
    if (!ranges.spans.empty()) capture.apply(SpansRecorded{std::move(ranges.spans)});
    if (!ranges.others.empty()) capture.apply(std::move(ranges.others));
    if (!ops.empty()) capture.apply(std::move(ops));
    for (const std::string& note : trace.notes) capture.apply(NoteRow{1, 0, 0, note});
    say_notes(trace.notes);
    if (trace.skipped > 0) capture.apply(LossRow{1, 0, "import_skipped", trace.skipped});
    capture.apply(RunEnded{1, RunEnd::ok, end, {1, end, utc != 0 ? utc + end : 0, std::nullopt}});
    return std::make_shared<const Snapshot>(capture.snapshot(1));
}

}  // namespace storage

}  // namespace draftscope
