#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "engine/formats/weight_source.h"
#include "kernels/matrix.h"

/// A disk cache of packed weights. The next load of the same files at the same precision neither reads the
/// larger source nor packs again (docs/FORMATS.md, docs/decisions/0018).
namespace draftscope {

struct WeightCacheOptions {
    enum class Mode {
        off,
        if_smaller,  ///< if the packed weights are smaller than the file's (a load is disk-bound)
        always,      ///< whenever the source has files
    };
    Mode mode = Mode::off;
    std::uint64_t min_bytes = std::uint64_t{512} << 20;  ///< smaller packed weights are not cached
    std::string folder;         ///< used if the model's folder is read-only; "" = no such folder
    bool next_to_model = true;  ///< prefer the model's folder if it is writable; false = only `folder`
};
/// Parses "auto", "on" or "off".
Result<WeightCacheOptions::Mode> parse_weight_cache_mode(std::string_view text);

/// Identifies the files of a source by names, sizes, modification times and samples of their bytes; ""
/// without files.
std::string source_identity(const WeightSource& source);

/// Reads the packed matrices of one source and precision from a file. Every byte is checked; mismatches are
/// rejected.
class WeightCacheReader {
  public:
    /// Opens `path`; returns null if it is not a cache of this source at this precision. `why_not` receives
    /// the reason ("" if the file does not exist).
    static std::unique_ptr<WeightCacheReader> open(const std::string& path, const std::string& identity,
                                                   kernels::Precision precision, std::string& why_not);
    ~WeightCacheReader();
    WeightCacheReader(const WeightCacheReader&) = delete;
    WeightCacheReader& operator=(const WeightCacheReader&) = delete;

    /// Reads matrix `name` of shape [n, k]; an incomplete or missing matrix is an error.
    Result<kernels::Matrix> read(kernels::Backend& backend, const std::string& name, int n, int k);

  private:
    WeightCacheReader(std::unique_ptr<WeightSource> tensors, int file)
        : tensors_(std::move(tensors)), file_(file) {}

    std::unique_ptr<WeightSource> tensors_;
    int file_;
};

/// Writes a cache file under a temporary name next to its path and renames it in finish(). Readers see the
/// old file or the complete new one. Only one process writes a path at a time.
class WeightCacheWriter {
  public:
    /// Creates a cache file; returns null and the reason in `why_not` if that is impossible. `bytes` is the
    /// approximate final size.
    static std::unique_ptr<WeightCacheWriter> create(const std::string& path, const std::string& identity,
                                                     kernels::Precision precision, std::uint64_t bytes,
                                                     std::string& why_not);
    ~WeightCacheWriter();  ///< deletes the file unless finish() succeeded
    WeightCacheWriter(const WeightCacheWriter&) = delete;
    WeightCacheWriter& operator=(const WeightCacheWriter&) = delete;

    Status add(kernels::Backend& backend, const std::string& name, const kernels::Matrix& matrix);
    /// Waits until the data is on disk, so that no write-back disturbs later measurements.
    Status finish();

  private:
    struct Entry {
        std::string name;
        std::string text;  ///< its entry in the header
        std::uint64_t offset, bytes;
    };
    WeightCacheWriter() = default;

    std::string path_, partial_, identity_;
    kernels::Precision precision_ = kernels::Precision::f32;
    int file_ = -1;
    std::uint64_t end_ = 0;
    std::vector<Entry> entries_;
};

}  // namespace draftscope
