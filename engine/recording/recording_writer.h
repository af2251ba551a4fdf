#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/recording/recording_info.h"

namespace draftscope {

/// The rows of one turn as a recording stores them.
struct RecordedRows {
    std::vector<TokenId> tokens;               ///< [n]
    std::vector<std::uint16_t> hidden;         ///< bf16 [n, d]
    std::vector<std::uint16_t> aux;            ///< bf16 [n, aux_width], empty without aux layers
    std::vector<std::int32_t> topk_ids;        ///< [n, recording_topk]
    std::vector<std::uint16_t> topk_logprobs;  ///< f16 [n, recording_topk]
};

/// Writes a recording turn by turn; memory does not grow with its length. The folder is a valid recording
/// only after finish() has returned.
class RecordingWriter {
  public:
    /// Creates the folder. If it contains a recording, that is bad_input unless `overwrite`.
    static Result<std::unique_ptr<RecordingWriter>> create(const std::string& folder, RecordingInfo info,
                                                           bool overwrite);
    /// Removes all files if finish() was not called.
    ~RecordingWriter();
    RecordingWriter(const RecordingWriter&) = delete;
    RecordingWriter& operator=(const RecordingWriter&) = delete;

    /// Appends the rows of a turn and sets its first_row. Turns are ordered by `index` in trace.json.
    Status append(RecordedPrompt prompt, std::int64_t index, const RecordedRows& rows);
    std::int64_t rows() const { return info_.rows; }
    int prompts() const { return static_cast<int>(placed_.size()); }
    /// Set before finish(): measured times, and whether everything was recorded.
    RecordingInfo& info() { return info_; }
    Status finish();

  private:
    struct Stream {
        const char* name;
        const char* type;
        std::size_t value_bytes;
        int columns;  ///< 0 = one-dimensional tensor
        std::span<const std::byte> (*rows)(const RecordedRows&);
        std::string path{};
        std::FILE* file = nullptr;
        std::size_t row_bytes() const { return value_bytes * std::max(columns, 1); }
    };
    RecordingWriter(std::string folder, RecordingInfo info)
        : folder_(std::move(folder)), info_(std::move(info)) {}
    Status open_streams();
    Status write(Stream& stream, const void* data, std::size_t bytes);
    Status join();
    Status copy_into(std::FILE* out, Stream& from);
    std::string header() const;
    std::string file_path(const char* name) const { return folder_ + "/" + name; }
    std::size_t stream_bytes(const Stream& stream) const { return info_.rows * stream.row_bytes(); }

    std::string folder_;
    RecordingInfo info_;
    std::vector<Stream> streams_;  ///< the first one becomes trace.safetensors
    std::vector<std::pair<std::int64_t, RecordedPrompt>> placed_;
    bool finished_ = false;
};

}  // namespace draftscope
