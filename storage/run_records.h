#pragma once

#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "base/result.h"
#include "capture/record.h"

/// Holds runs of captures in memory, to join the parts of one run. Parts are the shards of a cluster's job,
/// the blocks of a bench, or a killed run and its continuation.
namespace draftscope {

/// One run of a capture with all its rows.
struct RunRecords {
    std::string file;
    RunStarted started;
    RunEnd ended = RunEnd::live;
    TimeNs end_ns = 0;          ///< since the run's start
    std::vector<Record> steps;  ///< prompts, their first tokens, steps, late spans and late head evaluations
    std::tuple<std::vector<GpuOpRow>, std::vector<NvtxRangeRow>, std::vector<CounterRow>,
               std::vector<LossRow>, std::vector<NoteRow>>
        rows;  ///< of all other tables

    /// Returns its prompts, as far as they were decoded, in the order in which they began.
    std::vector<PromptRow> prompts() const;
    /// Removes everything about other conversations than those whose first turn has one of these ordinals.
    void keep_conversations(const std::set<int>& first_ordinals);
};

/// Reads every run of a capture, also those without an end. Errors are those of read_capture().
Result<std::vector<RunRecords>> read_run_records(const std::string& path);

/// Pushes the rows of `parts` as rows of run `run_id`, with ids that follow `ids`. Steps are ordered by
/// conversation and then as recorded, so that the sums of a batch of 1 have the order of one run. The parts'
/// times follow one another. The caller pushes the run's start and end. Returns the joined duration in ns.
TimeNs push_joined(std::vector<RunRecords> parts, RowId run_id, RowIds& ids, RecordSink& out);

/// A run and the parts that it is made of.
struct JoinedRun {
    RunRow row;
    std::vector<RunRecords> parts;  ///< at least one
};
/// Writes the joined runs to the new file `out`. If that fails, no output is left.
Status write_joined(const std::string& out, std::vector<JoinedRun> runs);

}  // namespace draftscope
