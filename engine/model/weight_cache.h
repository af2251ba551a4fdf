#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/model/weight_source.h"
#include "kernels/matrix.h"

/// Packed weights kept on disk, so that the next load of the same files at the same precision neither reads
/// the larger source nor packs again (docs/FORMATS.md, docs/decisions/0018).
namespace draftscope {

struct WeightCacheOptions {
    enum class When {
        off,
        pays,    ///< where the packed weights are fewer bytes than the file's: what bounds a load is the disk
        always,  ///< whenever there is a file to pack from
    };
    When when = When::off;
    std::uint64_t least_bytes = std::uint64_t{512} << 20;  ///< smaller packed weights are not kept
    std::string folder;  ///< for models that lie where nothing may be written; "" = no such folder
    bool beside = true;  ///< beside the model where its folder may be written; else in `folder` alone
    std::optional<bool>
        past_cache;  ///< read the model's files past the system's cache; nothing: where it pays
};
/// "auto", "on", "off".
Result<WeightCacheOptions::When> weight_cache_from(std::string_view text);

/// Names the files of a source: names, sizes, times of change and samples of their bytes; "" without files.
std::string source_identity(const WeightSource& source);

/// Packed matrices of one source and precision, in a file. Reading checks every byte; what does not match is
/// not used.
class WeightCacheReader {
  public:
    /// Null, with the reason in `why_not` ("" when there is no file), where `path` holds no packed weights of
    /// this source at this precision.
    static std::unique_ptr<WeightCacheReader> open(const std::string& path, const std::string& identity,
                                                   kernels::Precision precision, std::string& why_not);
    ~WeightCacheReader();
    WeightCacheReader(const WeightCacheReader&) = delete;
    WeightCacheReader& operator=(const WeightCacheReader&) = delete;

    /// Matrix `name` of shape [n, k]; an error when the file does not hold it whole.
    Result<kernels::Matrix> read(kernels::Exec& exec, const std::string& name, int n, int k);
    std::uint64_t bytes() const { return bytes_; }

  private:
    struct Entry {
        kernels::Precision precision;
        int n, k;
        std::uint32_t layout;
        std::uint64_t offset, bytes, checksum;
    };
    WeightCacheReader() = default;
    Status read_header(const std::string& identity, kernels::Precision precision);

    std::string path_;
    int file_ = -1;
    std::uint64_t bytes_ = 0;
    std::vector<std::pair<std::string, Entry>> entries_;  ///< sorted by name
};

/// Writes such a file beside its place and renames it in finish(), so that readers see the old file or the
/// whole new one. While one process writes a place, others leave it alone.
class WeightCacheWriter {
  public:
    /// Null, with the reason in `why_not`, where it cannot be written; `bytes` is about what it will take.
    static std::unique_ptr<WeightCacheWriter> create(const std::string& path, const std::string& identity,
                                                     kernels::Precision precision, std::uint64_t bytes,
                                                     std::string& why_not);
    ~WeightCacheWriter();  ///< leaves nothing behind unless finished
    WeightCacheWriter(const WeightCacheWriter&) = delete;
    WeightCacheWriter& operator=(const WeightCacheWriter&) = delete;

    Status add(kernels::Exec& exec, const std::string& name, const kernels::Matrix& matrix);
    /// Waits until the disk has it, so that no writing goes on beside what is measured next.
    Status finish();

  private:
    struct Entry {
        std::string name;
        std::string text;  ///< of the header
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
