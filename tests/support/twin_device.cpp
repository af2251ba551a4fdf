#include "tests/support/twin_device.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "kernels/cpu/matmul/layout.h"
#include "tests/support/twin_checks.h"

namespace draftscope::testing {
namespace {

using namespace kernels;

/// Set in device addresses, so that host code cannot dereference them.
constexpr std::uintptr_t mark = std::uintptr_t{1} << 60;

}  // namespace

float TwinDevice::value_of(half_t half) const {
    return dtype() == Float16Kind::f16 ? f16_to_float(half) : from_bf16(half);
}

void TwinDevice::add_dots(std::span<const double> x, const std::array<const half_t*, dots_together>& rows,
                          std::array<double, dots_together>& sums) const {
    const auto add = [&](auto value) {
        for (std::size_t k = 0; k < x.size(); ++k)
            for (std::size_t i = 0; i < dots_together; ++i)
                sums[i] += x[k] * static_cast<double>(value(rows[i][k]));
    };
    if (dtype() == Float16Kind::f16)
        add([](half_t half) { return f16_to_float(half); });
    else
        add([](half_t half) { return from_bf16(half); });
}

half_t TwinDevice::to_half(float value) const {
    return dtype() == Float16Kind::f16 ? float_to_f16(value) : to_bf16(value);
}

TwinDevice::TwinDevice(std::size_t memory_bytes)
    : Backend(kernels::make_thread_pool(2)), memory_(memory_bytes) {
    info_.name = "twin of a device on this CPU";
    info_.architecture = "twin";
    info_.processors = 1;
    info_.memory_bytes = memory_bytes;
}

TwinDevice::~TwinDevice() {
    drop_workspace();
    if (!blocks_.empty()) reject("destructor", "memory was not released");
}

void* TwinDevice::allocate(std::size_t bytes) {
    if (in_replay_) reject("allocate", "inside a graph");
    if (used_ + bytes > memory_ || allocations_left_ == 0) return nullptr;
    --allocations_left_;
    const std::size_t rounded = (std::max<std::size_t>(bytes, 1) + 255) / 256 * 256;
    auto* data = static_cast<std::byte*>(std::aligned_alloc(256, rounded));
    std::memset(data, 0, rounded);
    used_ += bytes;
    blocks_[data] = bytes;
    return reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(data) | mark);
}

void TwinDevice::release(void* data) {
    join_side_stream();  // pending work may use the memory
    auto* real = reinterpret_cast<std::byte*>(reinterpret_cast<std::uintptr_t>(data) & ~mark);
    const auto found = blocks_.find(real);
    if (found == blocks_.end()) reject("release", "not an allocation");
    used_ -= found->second;
    blocks_.erase(found);
    std::free(real);
}

std::byte* TwinDevice::inside(const void* address, std::size_t bytes, const char* what) {
    const auto number = reinterpret_cast<std::uintptr_t>(address);
    if ((number & mark) == 0) reject(what, address == nullptr ? "null address" : "a host address");
    auto* real = reinterpret_cast<std::byte*>(number & ~mark);
    auto after = blocks_.upper_bound(real);
    if (after == blocks_.begin()) reject(what, "outside every allocation");
    const auto& [start, length] = *std::prev(after);
    if (real + bytes > start + length) reject(what, "past the end of an allocation");
    return real;
}

void TwinDevice::upload(void* to, const void* from, std::size_t bytes) {
    if (in_replay_) reject("upload", "inside a graph");
    ++uploads_;
    if (bytes > 0) std::memcpy(inside(to, bytes, "upload"), from, bytes);
}

void TwinDevice::download(void* to, const void* from, std::size_t bytes) {
    if (in_replay_) reject("download", "inside a graph");
    ++downloads_;
    if (bytes == 0) return;
    const std::byte* data = inside(from, bytes, "download");
    downloads_under_way_.push_back({to, {data, data + bytes}});
}

void TwinDevice::copy(void* to, const void* from, std::size_t bytes) {
    if (bytes > 0) std::memmove(inside(to, bytes, "copy to"), inside(from, bytes, "copy from"), bytes);
}

Status TwinDevice::synchronize() {
    if (in_replay_) reject("synchronize", "inside a graph");
    ++finishes_;
    for (const auto& [to, bytes] : downloads_under_way_) std::memcpy(to, bytes.data(), bytes.size());
    downloads_under_way_.clear();
    return status();
}

void TwinDevice::graph(std::uint64_t key, FunctionRef<void()> work) {
    if (key == 0) reject("graph", "key 0");
    in_replay_ = true;
    requested_.clear();
    work();
    in_replay_ = false;
    // A captured graph repeats the first pass, so the ops of later passes have to be the same.
    const auto [known, fresh] = graphs_.emplace(key, requested_);
    if (!fresh && known->second != requested_) {
        std::fprintf(stderr, "asked before:\n%s\nasked now:\n%s\n", known->second.c_str(),
                     requested_.c_str());
        reject("graph", "the ops of a key changed");
    }
    if (!fresh) ++replayed_;
}

void TwinDevice::async_gather(const GatherOp& op, const UpdateIndexSetOp& set,
                              std::span<const std::int32_t> toggled) {
    if (in_replay_) reject("async_gather", "inside a graph");
    if (set.list != op.rows || set.count != static_cast<int>(toggled.size()))
        reject("async_gather", "the rows are not those of the set");
    ++side_ops_;
    (void)inside(op.to, size(op.count) * size(op.from.stride) * sizeof(half_t), "gathered aside");
    side_work_.push_back([this, op, set, numbers = std::vector(toggled.begin(), toggled.end())] {
        upload(const_cast<std::int32_t*>(set.toggled), numbers.data(), numbers.size() * sizeof(std::int32_t));
        update_index_set(set);
        gather(op);
    });
}

void TwinDevice::on_side_stream(std::function<void()> work) {
    if (in_replay_) reject("on_side_stream", "inside a graph");
    ++side_ops_;
    side_work_.push_back(std::move(work));
}

void TwinDevice::join_side_stream() {
    for (const std::function<void()>& work : std::exchange(side_work_, {})) work();
}

void TwinDevice::compact(std::span<const CompactOp> ops) {
    for (const CompactOp& op : ops) {
        if (op.planes != ops.front().planes || op.width != ops.front().width) reject("compact", "shapes");
        const int count = *at(op.count, 1, "count");
        if (count > op.max_count) reject("compact", "path longer than max_count");
        move_together(op, at(op.path, size(count), "path"), count);
    }
}

void TwinDevice::move_together(const CompactOp& op, const std::int32_t* path, int count) {
    if (in_replay_) reject("compact", "inside a graph");
    for (int plane = 0; plane < op.planes; ++plane) {
        half_t* data = row(op.cache.data, plane * op.cache.plane, size(op.cache.plane), "compacted plane");
        for (int i = 0; i < count; ++i) {
            const std::int64_t from = op.first + path[i], to = op.first + i;
            if ((from + 1) * op.width > op.cache.plane || path[i] < i) reject("compact", "path");
            std::memmove(data + to * op.width, data + from * op.width, size(op.width) * sizeof(half_t));
        }
    }
}

}  // namespace draftscope::testing
