#pragma once

#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/notes.h"
#include "base/result.h"
#include "capture/capture.h"

/// Imports rounds of other engines. Every format is converted to lines of `dsrounds` (docs/FORMATS.md), which
/// become the records of a capture.
namespace draftscope {

struct RoundsOptions {
    std::string format;                         ///< name of a format; "" = by content
    std::map<std::string, std::string> header;  ///< keys of the header that the files do not say
    std::shared_ptr<const Vocab> vocab;         ///< tokens of the target; null = not known
    std::string ranking;                        ///< what the ranks of `vocab` were counted on
};

struct RoundsReport {
    std::int64_t runs = 0, requests = 0, rounds = 0;
    std::int64_t refused = 0;  ///< lines that were left out
    Notes notes;               ///< what was refused, guessed or odd
    /// Token ids of prompts, by the prompt's row, where the file has them. A capture has no place for them.
    std::map<RowId, std::vector<TokenId>> prompt_ids = {};
};

/// Turns files into records, piece by piece, so that a growing file is a growing capture.
class RoundsImport {
  public:
    /// `sink` must outlive the import.
    static std::unique_ptr<RoundsImport> create(RoundsOptions options, RecordSink& sink);
    virtual ~RoundsImport() = default;
    /// Begins the next file. `name` is for messages; its stem names the request of a file with one answer.
    virtual void begin(const std::string& name) = 0;
    /// Takes the next bytes of the file. A wrong header is bad_input.
    virtual Status read(std::string_view bytes) = 0;
    virtual Status end() = 0;
    /// Ends the last run. Returns bad_input if no file had a round.
    virtual Result<RoundsReport> finish() = 0;
};

/// Returns the names of the formats: "dsrounds, llama-stream, ...".
std::string known_rounds_formats();
/// Refuses an unknown name of a format; "" is known.
Status check_rounds_format(const std::string& format);
/// Returns whether the beginning of the file is one of the formats. Reads at most 1 MiB.
bool is_rounds_file(const std::string& path);
/// Reads whole files into `import`.
Status read_rounds_files(RoundsImport& import, const std::vector<std::string>& paths);
/// Imports one file into memory. Errors as RoundsImport. `report` receives what was found, unless it is null.
Result<std::shared_ptr<const Snapshot>> import_rounds(const std::string& path,
                                                      RoundsReport* report = nullptr);

namespace storage {

/// Receives what a reader finds in a file.
class RoundsSink {
  public:
    virtual ~RoundsSink() = default;
    /// Takes a line of `dsrounds`: the header first, then requests and rounds.
    virtual void add(const nlohmann::json& line) = 0;
    /// Leaves out a part of the file; `why` names the field: "field timings.draft_n: ...".
    virtual void refuse(const std::string& why) = 0;
    virtual void note(const std::string& text) = 0;
    /// Names the next request of the file: its stem, then "STEM#2" and so on.
    virtual std::string next_request() = 0;
    /// What a reader keeps for the next file.
    virtual nlohmann::json& kept() = 0;
};

/// Reads one file of a format.
class RoundsReader {
  public:
    virtual ~RoundsReader() = default;
    /// Takes a line without its line end.
    virtual void read(std::string_view line, RoundsSink& out) = 0;
    /// The file has ended.
    virtual void finish(RoundsSink& /*out*/) {}
};

struct RoundsFormat {
    std::string_view name;
    /// Whether no other format has such a line.
    bool (*matches)(std::string_view line);
    std::unique_ptr<RoundsReader> (*make)();
};
const std::vector<RoundsFormat>& rounds_formats();

}  // namespace storage

}  // namespace draftscope
