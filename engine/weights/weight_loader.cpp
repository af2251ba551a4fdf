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

std::uint64_t stored_bytes_of(const WeightSource& source, const std::vector<PlannedMatrix>& plan) {
    std::uint64_t bytes = 0;
    for (const PlannedMatrix& planned : plan) {
        for (const StackedTensor& part : planned.parts) {
            const TensorInfo* info = source.find(part.name);
            if (info != nullptr) bytes += source.stored(*info).size();
        }
    }
    return bytes;
}

std::uint64_t packed_bytes_of(const std::vector<PlannedMatrix>& plan, kernels::Precision precision) {
    double weights = 0;
    for (const PlannedMatrix& planned : plan) weights += static_cast<double>(planned.rows()) * planned.cols;
    return static_cast<std::uint64_t>(weights * kernels::bytes_per_weight(precision));
}

}  // namespace

int PlannedMatrix::rows() const {
    int rows = 0;
    for (const StackedTensor& part : parts) rows += part.rows;
    return rows;
}

std::vector<std::string> weight_cache_places(const std::string& model, kernels::Precision precision,
                                             const WeightCacheOptions& options) {
    std::error_code error;
    const fs::path path = fs::absolute(model, error).lexically_normal();
    const bool folder = fs::is_directory(path, error);
    const std::string name = fmt::format("draftscope-{}.packed", kernels::to_text(precision));
    std::vector<std::string> places;
    const fs::path beside = folder ? path / name : fs::path(path.string() + "." + name);
    if (options.beside && ::access(beside.parent_path().c_str(), W_OK) == 0)
        places.push_back(beside.string());
    if (!options.folder.empty()) {
        const fs::path own = folder && path.filename().empty() ? path.parent_path() : path;
        places.push_back((fs::path(options.folder) /
                          fmt::format("{}-{:016x}.{}", own.filename().string(), fnv1a(own.string()), name))
                             .string());
    }
    return places;
}

WeightLoader::WeightLoader(kernels::Exec& exec, kernels::Precision precision, const WeightSource& source,
                           std::vector<PlannedMatrix> plan, const WeightCacheOptions& cache)
    : exec_(exec),
      precision_(precision),
      source_(source),
      plan_(std::move(plan)),
      past_cache_(cache.past_cache) {
    if (cache.when != WeightCacheOptions::When::off && exec.device() == nullptr) open_cache(cache);
    if (reader_ == nullptr) read_ahead();
}

void WeightLoader::open_cache(const WeightCacheOptions& cache) {
    const std::uint64_t packed = packed_bytes_of(plan_, precision_);
    const std::uint64_t stored = stored_bytes_of(source_, plan_);
    if (stored == 0 || packed < cache.least_bytes) return;
    // Packing runs at memory bandwidth, so the disk bounds the load.
    if (cache.when == WeightCacheOptions::When::pays && packed > stored - stored / 32) return;
    const std::string identity = source_identity(source_);
    if (identity.empty()) return;
    const std::vector<std::string> places = weight_cache_places(source_.path(), precision_, cache);
    std::string why_not;
    for (const std::string& place : places) {
        reader_ = WeightCacheReader::open(place, identity, precision_, why_not);
        if (reader_ != nullptr) {
            report_.cache = place;
            return;
        }
        if (!why_not.empty()) report_.said.push_back(fmt::format("{}: not used: {}", place, why_not));
    }
    for (const std::string& place : places) {
        writer_ = WeightCacheWriter::create(place, identity, precision_, packed, why_not);
        if (writer_ != nullptr) {
            report_.cache = place;
            return;
        }
        report_.said.push_back("packed weights are not cached: " + why_not);
    }
}

bool WeightLoader::past_cache(std::span<const DirectReader::Group> groups) const {
    constexpr std::uint64_t worth = std::uint64_t{1} << 30;
    constexpr double mostly = 0.5;
    std::uint64_t bytes = 0, largest = 0;
    for (const DirectReader::Group& group : groups) {
        std::uint64_t one = 0;
        for (const auto stretch : group) one += stretch.size();
        bytes += one;
        largest = std::max(largest, one);
    }
    if (bytes < worth) return false;
    const std::uint64_t packed = exec_.device() != nullptr ? 0 : packed_bytes_of(plan_, precision_);
    const std::optional<std::uint64_t> free = available_memory();
    if (!free || packed + largest + DirectReader::usual_window > *free) return false;
    // Cached packed weights serve the next load, so the model's files need not stay in the page cache. Files
    // and packed weights that exceed half of the free memory would evict other files.
    if (writer_ == nullptr && bytes + packed <= *free / 2) return false;
    return cached_share(groups) < mostly;
}

void WeightLoader::read_ahead() {
    std::vector<DirectReader::Group> groups;
    bool stored = true;
    for (std::size_t i = next_; i < plan_.size(); ++i) {
        DirectReader::Group& group = groups.emplace_back();
        for (const StackedTensor& part : plan_[i].parts) {
            const TensorInfo* info = source_.find(part.name);
            const auto stretch = info == nullptr ? std::span<const std::uint8_t>() : source_.stored(*info);
            stored = stored && !stretch.empty();
            if (!stretch.empty()) group.push_back(stretch);
        }
    }
    if (stored && (past_cache_ ? *past_cache_ : past_cache(groups)))
        direct_ = DirectReader::open(source_.files(), groups);
    report_.past_cache = direct_ != nullptr;
    if (direct_ != nullptr) return;
    std::vector<std::span<const std::uint8_t>> stretches;
    std::uint64_t bytes = 0;
    stretches_.assign(plan_.size(), 0);
    for (std::size_t g = 0; g < groups.size(); ++g) {
        for (const auto stretch : groups[g]) {
            stretches.push_back(stretch);
            bytes += stretch.size();
        }
        stretches_[next_ + g] = stretches.size();
    }
    if (stretches.empty()) return;
    const std::optional<std::uint64_t> free = available_memory();
    const bool tight = free && bytes + packed_bytes_of(plan_, precision_) > *free;
    ahead_ = std::make_unique<ReadAhead>(std::move(stretches),
                                         tight ? ReadAhead::Behind::evict : ReadAhead::Behind::unmap);
}

Result<kernels::Matrix> WeightLoader::pack(const PlannedMatrix& planned) {
    std::vector<std::span<const std::uint8_t>> brought;
    if (direct_ != nullptr) {
        DS_ASSIGN(brought, direct_->next());
    }
    DS_ASSIGN(kernels::Matrix matrix,
              pack_stacked(exec_, precision_, source_, planned.parts, planned.cols, planned.reason, brought));
    if (writer_ != nullptr) {
        if (const Status added = writer_->add(exec_, planned.name, matrix); !added.ok()) {
            report_.said.push_back(added.error().message);
            report_.cache.clear();
            writer_.reset();
        }
    }
    return matrix;
}

Result<kernels::Matrix> WeightLoader::next() {
    const PlannedMatrix& planned = plan_[next_];
    if (reader_ != nullptr) {
        auto kept = reader_->read(exec_, planned.name, planned.rows(), planned.cols);
        if (kept.ok()) {
            ++next_;
            report_.bytes += kept->bytes();
            report_.from_cache += kept->bytes();
            return kept;
        }
        // The matrices read so far passed their checks; the rest is packed from the model's files.
        report_.said.push_back(kept.error().message + "; it was removed and will be rewritten");
        std::error_code ignored;
        fs::remove(report_.cache, ignored);
        report_.cache.clear();
        reader_.reset();
        read_ahead();
    }
    DS_ASSIGN(kernels::Matrix matrix, pack(planned));
    report_.bytes += matrix.bytes();
    if (ahead_ != nullptr) ahead_->done(stretches_[next_]);
    ++next_;
    return matrix;
}

LoadReport WeightLoader::finish() {
    ahead_.reset();
    direct_.reset();
    if (writer_ != nullptr) {
        if (const Status written = writer_->finish(); !written.ok()) {
            report_.said.push_back(written.error().message);
            report_.cache.clear();
        }
        writer_.reset();
    }
    reader_.reset();
    for (const std::string& line : report_.said) log_warning("{}", line);
    return std::move(report_);
}

}  // namespace draftscope
