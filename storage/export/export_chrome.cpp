#include <zlib.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>
#include <vector>

#include "base/log.h"
#include "base/units.h"
#include "capture/token_text.h"
#include "storage/capture_file.h"
#include "storage/schema.h"

namespace draftscope {

namespace {

using storage::Database;
using storage::Statement;

/// Above this number the trace viewers in browsers run out of memory.
constexpr std::int64_t max_browser_events = 500'000;
/// GPU rows appear as a separate process next to their run's, as in other profilers.
constexpr std::int64_t gpu_pid_offset = 1'000'000;

/// Formats a JSON string. Invalid UTF-8 is replaced, because it would make the whole file unreadable.
std::string json_text(std::string_view text) {
    return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

/// Trace times are microseconds. Three decimals keep the nanoseconds, which a double would round.
std::string micros(TimeNs ns) {
    const char* sign = ns < 0 ? "-" : "";
    const auto bits = static_cast<std::uint64_t>(ns), size = ns < 0 ? 0 - bits : bits;
    return fmt::format("{}{}.{:03}", sign, size / 1000, size % 1000);
}

/// Slices of one track must nest or be disjoint. Other slices go to the next free track of the same name.
class Tracks {
  public:
    /// Slices must be sorted by start, longer ones first. Returns the number of the track, 0 = the first.
    std::size_t place(TimeNs start, TimeNs end) {
        for (std::size_t i = 0;; ++i) {
            if (i == open_.size()) open_.emplace_back();
            std::vector<TimeNs>& ends = open_[i];
            while (!ends.empty() && ends.back() <= start) ends.pop_back();
            if (!ends.empty() && ends.back() < end) continue;
            ends.push_back(end);
            return i;
        }
    }

  private:
    std::vector<std::vector<TimeNs>> open_;  ///< end times of the open slices of each track
};

/// The output file: the object form of the Trace Event format, plain or gzip.
class TraceEventWriter {
  public:
    TraceEventWriter(const std::string& name, bool compress)
        : file_(gzopen(name.c_str(), compress ? "wb6" : "wbT")) {}
    ~TraceEventWriter() {
        if (file_ != nullptr) gzclose(file_);
    }
    TraceEventWriter(const TraceEventWriter&) = delete;
    TraceEventWriter& operator=(const TraceEventWriter&) = delete;

    bool open() const { return file_ != nullptr; }
    void text(std::string_view text) {
        if (text.empty() || !good_) return;
        good_ =
            gzwrite(file_, text.data(), static_cast<unsigned>(text.size())) == static_cast<int>(text.size());
    }
    void event(std::string_view json) {
        text(events_++ == 0 ? "\n" : ",\n");
        text(json);
    }
    std::int64_t events() const { return events_; }
    bool close() {
        const int code = gzclose(file_);
        file_ = nullptr;
        return good_ && code == Z_OK;
    }

  private:
    gzFile file_;
    bool good_ = true;
    std::int64_t events_ = 0;
};

class ChromeExport {
  public:
    ChromeExport(const std::string& path, const Database& db, TraceEventWriter& file, bool drop_text)
        : path_(path), db_(db), file_(file), drop_text_(drop_text) {}

    Status write() {
        file_.text("{\"displayTimeUnit\":\"ns\",\"otherData\":{\"writer\":\"draftscope\"},\"traceEvents\":[");
        DS_TRY(processes());
        if (!drop_text_) DS_TRY(round_texts());
        DS_TRY(steps());
        DS_TRY(rounds());
        DS_TRY(spans());
        DS_TRY(gpu_ops());
        DS_TRY(nvtx_ranges());
        DS_TRY(flows());
        DS_TRY(counters());
        DS_TRY(round_counters());
        DS_TRY(marks());
        file_.text("\n]}\n");
        return {};
    }

  private:
    template <typename Use>
    Status each(std::string_view sql, Use use) {
        return storage::for_each_row(path_, db_, "exporting", sql, use);
    }
    /// Each run has its own time zero; the trace uses one time line.
    std::string ts(RowId run, TimeNs ns) { return micros(saturating_sum(ns, offset_[run])); }
    /// Thread ids are unique in the file, because some readers merge equal ids of different processes.
    std::int64_t tid(std::int64_t pid, const std::string& name);
    /// Returns the thread id of the slice's track.
    std::int64_t slice(std::int64_t pid, RowId run, const std::string& track, Tracks& tracks, TimeNs start,
                       TimeNs end, const std::string& name, const char* category, const std::string& args);
    void counter(RowId run, TimeNs ns, std::string_view name, double value);
    Status processes();
    Status round_texts();
    Status steps();
    Status rounds();
    Status spans();
    Status gpu_ops();
    Status flows();
    Status nvtx_ranges();
    Status round_counters();
    Status counters();
    Status marks();

    const std::string& path_;
    const Database& db_;
    TraceEventWriter& file_;
    bool drop_text_;
    std::map<RowId, TimeNs> offset_;
    std::map<std::pair<std::int64_t, std::string>, std::int64_t> tids_;
    std::map<RowId, std::string> round_bytes_;  ///< bytes of the round's tokens; tokens may share a character
    struct Launch {
        std::int64_t tid = 0;
        TimeNs start_ns = 0;
    };
    std::map<std::pair<RowId, std::int64_t>, Launch> launches_;  ///< by run and correlation id
    struct Kernel {
        RowId id, run;
        std::int64_t correlation, tid;
        TimeNs start_ns;
    };
    std::vector<Kernel> kernels_;  ///< GPU work that a call launched
};

std::int64_t ChromeExport::tid(std::int64_t pid, const std::string& name) {
    const auto [found, added] = tids_.try_emplace({pid, name}, static_cast<std::int64_t>(tids_.size()) + 1);
    if (added) {
        file_.event(fmt::format(R"({{"ph":"M","pid":{},"tid":{},"name":"thread_name","args":{{"name":{}}}}})",
                                pid, found->second, json_text(name)));
        file_.event(fmt::format(
            R"({{"ph":"M","pid":{},"tid":{},"name":"thread_sort_index","args":{{"sort_index":{}}}}})", pid,
            found->second, found->second));
    }
    return found->second;
}

std::int64_t ChromeExport::slice(std::int64_t pid, RowId run, const std::string& track, Tracks& tracks,
                                 TimeNs start, TimeNs end, const std::string& name, const char* category,
                                 const std::string& args) {
    end = std::max(start, end);
    const std::size_t place = tracks.place(start, end);
    const std::int64_t thread = tid(pid, place == 0 ? track : fmt::format("{} ({})", track, place + 1));
    file_.event(fmt::format(
        R"({{"ph":"X","pid":{},"tid":{},"ts":{},"dur":{},"name":{},"cat":"{}","args":{{{}}}}})", pid, thread,
        ts(run, start), micros(saturating_difference(start, end)), json_text(name), category, args));
    return thread;
}

void ChromeExport::counter(RowId run, TimeNs ns, std::string_view name, double value) {
    if (!std::isfinite(value)) return;  // JSON has no infinity
    file_.event(fmt::format(R"({{"ph":"C","pid":{},"ts":{},"name":{},"args":{{"value":{}}}}})", run,
                            ts(run, ns), json_text(name), value));
}

Status ChromeExport::processes() {
    DS_TRY(each(
        "SELECT run_id, min(monotonic_ns) - (SELECT min(monotonic_ns) FROM clock_anchor) FROM clock_anchor "
        "GROUP BY run_id",
        [&](Statement& row) { offset_[row.integer(0)] = row.integer(1); }));
    return each(
        fmt::format("SELECT id, name, target, drafter, head, tier || CASE {} WHEN 'exact' THEN '' WHEN "
                    "'LOSSY' THEN ', LOSSY ' || iif(acceptance = 'real', verify, acceptance || ' "
                    "acceptance') ELSE ', lossless in distribution' END, synthetic, EXISTS (SELECT 1 FROM "
                    "gpu_op WHERE run_id = run.id) FROM run ORDER BY id",
                    storage::losslessness_sql),
        [&](Statement& row) {
            const std::int64_t pid = row.integer(0);
            const std::string name =
                fmt::format("run {} {}: {}, {}, {} ({}{})", pid, row.text(1), row.text(2), row.text(3),
                            row.text(4), row.text(5), row.integer(6) != 0 ? ", synthetic" : "");
            const auto process = [&](std::int64_t id, const std::string& text) {
                file_.event(fmt::format(R"({{"ph":"M","pid":{},"name":"process_name","args":{{"name":{}}}}})",
                                        id, json_text(text)));
            };
            process(pid, name);
            if (row.integer(7) != 0) process(gpu_pid_offset + pid, "GPU of " + name);
        });
}

Status ChromeExport::round_texts() {
    return each(
        "SELECT t.round_id, CASE WHEN length(v.bytes) > 0 THEN v.bytes ELSE CAST(v.text AS BLOB) END FROM "
        "token t JOIN prompt p ON p.id = t.prompt_id JOIN run r ON r.id = p.run_id JOIN vocab v ON "
        "v.vocab_id = r.vocab_id AND v.token_id = t.token_id WHERE t.round_id IS NOT NULL ORDER BY t.rowid",
        [&](Statement& row) { round_bytes_[row.integer(0)] += row.blob(1); });
}

Status ChromeExport::steps() {
    std::map<RowId, Tracks> tracks;
    return each(
        "SELECT run_id, ordinal, start_ns, end_ns, paused_ns, coalesce(excluded, 'no') FROM step "
        "WHERE end_ns IS NOT NULL ORDER BY run_id, start_ns, end_ns DESC",
        [&](Statement& row) {
            const RowId run = row.integer(0);
            slice(run, run, "steps", tracks[run], row.integer(2), row.integer(3),
                  fmt::format("step {}", row.integer(1) + 1), "step",
                  fmt::format(R"("paused_us":{},"excluded":{})", micros(row.integer(4)),
                              json_text(row.text(5))));
        });
}

Status ChromeExport::rounds() {
    const bool names_drafter = storage::has_column(db_, "round", "drafted_by");
    return each(
        fmt::format(
            "SELECT r.id, r.run_id, r.start_ns, r.end_ns, p.ordinal, r.ordinal, r.drafted, r.accepted, "
            "r.committed, p.category, {} FROM round r JOIN prompt p ON p.id = r.prompt_id "
            "WHERE r.end_ns IS NOT NULL ORDER BY r.id",
            names_drafter ? "r.drafted_by" : "''"),
        [&](Statement& row) {
            const RowId id = row.integer(0), run = row.integer(1);
            const std::string head =
                fmt::format(R"("pid":{},"tid":{},"cat":"round","id":{},"name":"prompt {} round {}")", run,
                            tid(run, "rounds"), id, row.integer(4) + 1, row.integer(5) + 1);
            std::string args =
                fmt::format(R"("drafted":{},"accepted":{},"committed":{},"category":{})", row.integer(6),
                            row.integer(7), row.integer(8), json_text(row.text(9)));
            if (!row.text(10).empty()) args += ",\"drafter\":" + json_text(row.text(10));
            const auto bytes = round_bytes_.find(id);
            if (bytes != round_bytes_.end()) args += ",\"text\":" + json_text(format_token(bytes->second));
            file_.event(
                fmt::format(R"({{"ph":"b","ts":{},{},"args":{{{}}}}})", ts(run, row.integer(2)), head, args));
            file_.event(fmt::format(R"({{"ph":"e","ts":{},{}}})", ts(run, row.integer(3)), head));
            file_.event(fmt::format(R"({{"ph":"i","ts":{},"pid":{},"tid":{},"s":"p","name":"round {}.{}"}})",
                                    ts(run, row.integer(2)), run, tid(run, "rounds"), row.integer(4) + 1,
                                    row.integer(5) + 1));
            file_.event(fmt::format(
                R"({{"ph":"C","pid":{},"ts":{},"name":"tokens per round","args":{{"accepted":{},"committed":{}}}}})",
                run, ts(run, row.integer(3)), row.integer(7), row.integer(8)));
        });
}

Status ChromeExport::spans() {
    std::map<std::tuple<RowId, int, int>, Tracks> tracks;
    return each(
        "SELECT s.run_id, s.lane, s.thread_id, s.start_ns, s.end_ns, p.name, s.round_id, s.level, s.rows, "
        "s.bytes, s.step_id FROM span s JOIN phase p ON p.id = s.phase_id ORDER BY s.run_id, s.lane, "
        "s.thread_id, s.start_ns, s.end_ns DESC, s.id DESC",
        [&](Statement& row) {
            const RowId run = row.integer(0);
            const int lane = static_cast<int>(row.integer(1)), thread = static_cast<int>(row.integer(2));
            const std::string track = lane == 0 ? fmt::format("phases, thread {}", thread)
                                                : fmt::format("side lane {}, thread {}", lane, thread);
            slice(run, run, track, tracks[{run, lane, thread}], row.integer(3), row.integer(4),
                  std::string(row.text(5)), "phase",
                  fmt::format(R"("step":{},"round":{},"level":{},"rows":{},"bytes":{},"lane":{})",
                              row.integer(10), row.integer(6), row.integer(7), row.integer(8), row.integer(9),
                              lane));
        });
}

Status ChromeExport::gpu_ops() {
    std::map<std::pair<RowId, std::int64_t>, Tracks> tracks;
    return each(
        "SELECT g.run_id, g.stream, g.start_ns, g.end_ns, g.name, p.name, g.step_id, g.grid, g.block, "
        "g.bytes, g.correlation_id, g.graph_node_id, g.id FROM gpu_op g JOIN phase p ON p.id = g.phase_id "
        "ORDER BY g.run_id, g.stream, g.start_ns, g.end_ns DESC, g.id",
        [&](Statement& row) {
            const RowId run = row.integer(0);
            const std::int64_t stream = row.integer(1);
            const std::int64_t thread = slice(
                gpu_pid_offset + run, run, fmt::format("stream {}", stream), tracks[{run, stream}],
                row.integer(2), row.integer(3), std::string(row.text(4)), "gpu",
                fmt::format(
                    R"("phase":{},"step":{},"grid":{},"block":{},"bytes":{},"correlation":{},"graph node id":{})",
                    json_text(row.text(5)), row.integer(6), json_text(row.text(7)), json_text(row.text(8)),
                    row.integer(9), row.integer(10), row.integer(11)));
            if (row.integer(10) != 0)
                kernels_.push_back({row.integer(12), run, row.integer(10), thread, row.integer(2)});
        });
}

/// Writes arrows from the launching call to the GPU work, as PyTorch's profiler does.
Status ChromeExport::flows() {
    for (const Kernel& kernel : kernels_) {
        const auto launch = launches_.find({kernel.run, kernel.correlation});
        if (launch == launches_.end()) continue;
        const auto end_of = [&](const char* kind, std::int64_t pid, std::int64_t thread, TimeNs at) {
            file_.event(fmt::format(
                R"({{"ph":"{}","id":{},"pid":{},"tid":{},"ts":{},"cat":"ac2g","name":"ac2g"{}}})", kind,
                kernel.id, pid, thread, ts(kernel.run, at), *kind == 'f' ? R"(,"bp":"e")" : ""));
        };
        end_of("s", kernel.run, launch->second.tid, launch->second.start_ns);
        end_of("f", gpu_pid_offset + kernel.run, kernel.tid, kernel.start_ns);
    }
    return {};
}

Status ChromeExport::nvtx_ranges() {
    std::map<std::string, Tracks> tracks;
    return each(
        "SELECT run_id, domain, thread_id, start_ns, end_ns, name, payload FROM nvtx_range "
        "ORDER BY run_id, domain, thread_id, start_ns, end_ns DESC",
        [&](Statement& row) {
            const RowId run = row.integer(0);
            const bool call = row.text(1) == "CUDA API";
            const std::string track =
                fmt::format("{}{}, thread {}", call ? "" : "NVTX ", row.text(1), row.integer(2));
            const std::int64_t thread =
                slice(run, run, track, tracks[fmt::format("{} {}", run, track)], row.integer(3),
                      row.integer(4), std::string(row.text(5)), call ? "cuda_runtime" : "nvtx",
                      fmt::format(R"("{}":{})", call ? "correlation" : "payload", row.integer(6)));
            if (call) launches_[{run, row.integer(6)}] = {thread, row.integer(3)};
        });
}

/// Writes the running tau and the head's active rows at the end of each round.
Status ChromeExport::round_counters() {
    struct RunningSums {
        std::int64_t rounds = 0, committed = 0;
    };
    std::map<RowId, RunningSums> so_far;
    return each(
        "SELECT r.run_id, r.end_ns, r.committed, h.active_rows FROM round r LEFT JOIN head_eval h ON "
        "h.round_id = r.id AND h.mode = 'drive' WHERE r.end_ns IS NOT NULL ORDER BY r.run_id, r.end_ns, r.id",
        [&](Statement& row) {
            const RowId run = row.integer(0);
            RunningSums& count = so_far[run];
            ++count.rounds;
            count.committed += row.integer(2);
            counter(run, row.integer(1), "tau",
                    static_cast<double>(count.committed) / static_cast<double>(count.rounds));
            if (!row.is_null(3)) counter(run, row.integer(1), "active rows", row.real(3));
        });
}

Status ChromeExport::counters() {
    return each("SELECT run_id, time_ns, name, value FROM counter WHERE value IS NOT NULL ORDER BY rowid",
                [&](Statement& row) { counter(row.integer(0), row.integer(1), row.text(2), row.real(3)); });
}

Status ChromeExport::marks() {
    const auto mark = [&](Statement& row, const std::string& name) {
        file_.event(fmt::format(R"({{"ph":"i","pid":{},"tid":{},"ts":{},"s":"p","name":{}}})", row.integer(0),
                                tid(row.integer(0), "steps"), ts(row.integer(0), row.integer(1)),
                                json_text(name)));
    };
    DS_TRY(each("SELECT run_id, time_ns, kind, count FROM loss ORDER BY rowid", [&](Statement& row) {
        mark(row, fmt::format("lost: {} x {}", row.integer(3), row.text(2)));
    }));
    if (drop_text_) return {};
    return each("SELECT run_id, time_ns, text FROM note ORDER BY rowid",
                [&](Statement& row) { mark(row, fmt::format("note: {}", row.text(2))); });
}

}  // namespace

Status export_chrome(const std::string& path, const std::string& out, bool drop_text) {
    DS_ASSIGN(const Database db, storage::open_capture(path));
    DS_TRY(storage::check_new_file(out));
    if (db.exec("BEGIN") != SQLITE_OK) return storage::file_error(path, db, "starting to read");
    return storage::write_then_rename(out, [&](const std::string& partial) -> Status {
        TraceEventWriter file(partial, out.ends_with(".gz"));
        if (!file.open())
            return failed("{}: can't be written; check that its folder exists and is writable", partial);
        DS_TRY(ChromeExport(path, db, file, drop_text).write());
        if (!file.close()) return failed("{}: writing failed; is the disk full?", partial);
        if (file.events() > max_browser_events)
            log_warning(
                "{}: {} events may exceed a browser's memory; open the file through trace_processor --httpd",
                out, file.events());
        return {};
    });
}

}  // namespace draftscope
