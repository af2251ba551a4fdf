#include "engine/weights/weight_loader.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include "base/hash.h"
#include "base/log.h"
#include "engine/weights/memory_check.h"

namespace draftscope {
namespace {

namespace fs = std::filesystem;

std::uint64_t sum_stored_bytes(const WeightSource& source, const std::vector<PlannedMatrix>& plan) {
    std::uint64_t bytes = 0;
    for (const PlannedMatrix& planned : plan) {
        for (const StackedTensor& part : planned.parts) {
            const TensorInfo* info = source.find(part.name);
            if (info != nullptr) bytes += source.stored(*info).size();
        }
    }
    return bytes;
}

std::uint64_t sum_packed_bytes(const std::vector<PlannedMatrix>& plan) {
    double bytes = 0;
    for (const PlannedMatrix& planned : plan)
        bytes +=
            static_cast<double>(planned.rows()) * planned.cols * kernels::bytes_per_weight(planned.precision);
    return static_cast<std::uint64_t>(bytes);
}

}  // namespace

int PlannedMatrix::rows() const {
    int rows = 0;
    for (const StackedTensor& part : parts) rows += part.rows;
    return rows;
}

std::vector<std::string> weight_cache_paths(const std::string& model, kernels::Precision precision,
                                            const WeightCacheOptions& options) {
    std::error_code error;
    const fs::path path = fs::absolute(model, error).lexically_normal();
    const bool folder = fs::is_directory(path, error);
    const std::string name = fmt::format("draftscope-{}.packed", kernels::to_text(precision));
    std::vector<std::string> paths;
    const fs::path next_to_model = folder ? path / name : fs::path(path.string() + "." + name);
    if (options.next_to_model && ::access(next_to_model.parent_path().c_str(), W_OK) == 0)
        paths.push_back(next_to_model.string());
    if (!options.folder.empty()) {
        const fs::path model_path = folder && path.filename().empty() ? path.parent_path() : path;
        paths.push_back(
            (fs::path(options.folder) /
             fmt::format("{}-{:016x}.{}", model_path.filename().string(), fnv1a(model_path.string()), name))
                .string());
    }
    return paths;
}

WeightLoader::WeightLoader(kernels::Backend& backend, kernels::Precision precision,
                           const WeightSource& source, std::vector<PlannedMatrix> plan,
                           const WeightCacheOptions& cache)
    : backend_(backend), precision_(precision), source_(source), plan_(std::move(plan)) {
    if (cache.mode != WeightCacheOptions::Mode::off && backend.is_host()) open_cache(cache);
    if (reader_ == nullptr) read_ahead();
}

void WeightLoader::open_cache(const WeightCacheOptions& cache) {
    const std::uint64_t packed = sum_packed_bytes(plan_);
    const std::uint64_t stored = sum_stored_bytes(source_, plan_);
    if (stored == 0 || packed < cache.min_bytes) return;
    // Packing runs at memory bandwidth, so the disk bounds the load.
    if (cache.mode == WeightCacheOptions::Mode::if_smaller && packed > stored - stored / 32) return;
    const std::string identity = source_identity(source_);
    if (identity.empty()) return;
    const std::vector<std::string> paths = weight_cache_paths(source_.path(), precision_, cache);
    std::string why_not;
    for (const std::string& candidate : paths) {
        reader_ = WeightCacheReader::open(candidate, identity, precision_, why_not);
        if (reader_ != nullptr) {
            report_.cache = candidate;
            return;
        }
        if (!why_not.empty()) report_.messages.push_back(fmt::format("{}: not used: {}", candidate, why_not));
    }
    for (const std::string& candidate : paths) {
        writer_ = WeightCacheWriter::create(candidate, identity, precision_, packed, why_not);
        if (writer_ != nullptr) {
            report_.cache = candidate;
            return;
        }
        report_.messages.push_back("packed weights are not cached: " + why_not);
    }
}

void WeightLoader::read_ahead() {
    std::vector<std::span<const std::uint8_t>> ranges;
    std::uint64_t bytes = 0;
    source_ranges_.assign(plan_.size(), 0);
    for (std::size_t i = next_; i < plan_.size(); ++i) {
        for (const StackedTensor& part : plan_[i].parts) {
            const TensorInfo* info = source_.find(part.name);
            const auto range = info == nullptr ? std::span<const std::uint8_t>() : source_.stored(*info);
            if (range.empty()) continue;
            ranges.push_back(range);
            bytes += range.size();
        }
        source_ranges_[i] = ranges.size();
    }
    if (ranges.empty()) return;
    const std::optional<std::uint64_t> free = available_memory();
    const bool tight = free && bytes + sum_packed_bytes(plan_) > *free;
    ahead_ = std::make_unique<FileReadAhead>(
        std::move(ranges), tight ? FileReadAhead::Release::evict : FileReadAhead::Release::unmap);
}

Result<kernels::Matrix> WeightLoader::pack(const PlannedMatrix& planned) {
    DS_ASSIGN(kernels::Matrix matrix, pack_stacked(backend_, planned.precision, source_, planned.parts,
                                                   planned.cols, planned.reason));
    if (writer_ != nullptr) {
        if (const Status added = writer_->add(backend_, planned.name, matrix); !added.ok()) {
            report_.messages.push_back(added.error().message);
            report_.cache.clear();
            writer_.reset();
        }
    }
    return matrix;
}

Result<kernels::Matrix> WeightLoader::next() {
    const PlannedMatrix& planned = plan_[next_];
    if (reader_ != nullptr) {
        auto cached = reader_->read(backend_, planned.name, planned.rows(), planned.cols);
        if (cached.ok()) {
            ++next_;
            report_.bytes += cached->bytes();
            report_.from_cache += cached->bytes();
            return cached;
        }
        // The matrices read so far passed their checks; the rest is packed from the model's files.
        report_.messages.push_back(cached.error().message + "; it was removed and will be rewritten");
        std::error_code ignored;
        fs::remove(report_.cache, ignored);
        report_.cache.clear();
        reader_.reset();
        read_ahead();
    }
    DS_ASSIGN(kernels::Matrix matrix, pack(planned));
    report_.bytes += matrix.bytes();
    if (ahead_ != nullptr) ahead_->done(source_ranges_[next_]);
    ++next_;
    return matrix;
}

LoadReport WeightLoader::finish() {
    ahead_.reset();
    if (writer_ != nullptr) {
        if (const Status written = writer_->finish(); !written.ok()) {
            report_.messages.push_back(written.error().message);
            report_.cache.clear();
        }
        writer_.reset();
    }
    reader_.reset();
    for (const std::string& line : report_.messages) log_warning("{}", line);
    return std::move(report_);
}

}  // namespace draftscope
