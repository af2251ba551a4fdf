#include "kernels/matmul.h"

#include <unistd.h>

#include <algorithm>
#include <cassert>

#include "kernels/cpu/activations.h"
#include "kernels/cpu/block_shares.h"
#include "kernels/cpu/split.h"
#include "kernels/cpu/weight_stream.h"
#include "kernels/device/device_matrix.h"

namespace draftscope::kernels {

const MatmulKernels& matmul_kernels_of(Isa isa) {
#if defined(DS_KERNELS_X86)
    switch (isa) {
        case Isa::amx:
            return matmul_kernels_amx;
        case Isa::avx512_bf16:
            return matmul_kernels_bf16;
        case Isa::avx512_vnni:
            return matmul_kernels_vnni;
        case Isa::avx512:
            return matmul_kernels_avx512;
        case Isa::avx_vnni:
            return matmul_kernels_avx_vnni;
        case Isa::avx2:
            return matmul_kernels_avx2;
        case Isa::portable:
            break;
    }
#endif
    (void)isa;
    return matmul_kernels_portable;
}

namespace {

/// Of the second cache of one core, activations and outputs taken off.
std::size_t kept_in_cache() {
    long second_cache = 0;
#if defined(_SC_LEVEL2_CACHE_SIZE)
    second_cache = sysconf(_SC_LEVEL2_CACHE_SIZE);
#endif
    constexpr long smallest = 512 << 10;  // also where the system does not say
    return static_cast<std::size_t>(std::max(second_cache, smallest) / 4 * 3);
}

}  // namespace

bool comes_from_memory(std::size_t bytes) {
    static const std::size_t kept = kept_in_cache();
    return bytes > kept;
}

namespace {

/// Runs of neighbouring numbers in chosen[begin, end): visit(first number, one past the last, place of the
/// first).
template <typename Visit>
void for_each_run(std::span<const int> chosen, int begin, int end, Visit visit) {
    for (int at = begin; at < end;) {
        const int first = chosen[static_cast<std::size_t>(at)];
        int length = 1;
        while (at + length < end && chosen[static_cast<std::size_t>(at + length)] == first + length) ++length;
        visit(first, first + length, at);
        at += length;
    }
}

/// One call. `chosen`: blocks of outputs, rising, one after the other in y; null = all.
class Product {
  public:
    Product(Exec& exec, const Matrix& weights, const std::span<const int>* chosen, Rows<const float> x,
            Rows<float> y, const float* bias)
        : exec_(exec),
          kernels_(matmul_kernels_of(exec.isa())),
          kernel_(blocks_kernel(kernels_, weights.packing())),
          block_(block_bytes(weights.precision(), weights.k())),
          chosen_(chosen),
          activations_(kernels_, weights.precision(), x) {
        const int all = blocks_of(weights.n(), lanes);
        count_ = chosen == nullptr ? all : static_cast<int>(chosen->size());
        work_.weights = weights.data();
        work_.scales =
            reinterpret_cast<const std::uint16_t*>(weights.data() + static_cast<std::size_t>(all) * block_);
        work_.n = weights.n();
        work_.k = weights.k();
        work_.rows = x.rows;
        work_.x = x.data;
        work_.x_stride = x.stride;
        work_.bias = bias;
        work_.y = y.data;
        work_.y_stride = y.stride;
    }

    void run() {
        if (activations_.needed() && work_.rows > rows_prepared_twice) {
            shared_ = exec_.shared_scratch(activations_.bytes());
            split_range(exec_, work_.rows, std::int64_t{work_.rows} * work_.k,
                        [&](int, int begin, int end) { activations_.prepare(shared_, begin, end); });
        }
        const std::int64_t operations = std::int64_t{work_.rows} * count_ * lanes * work_.k;
        const int threads =
            operations < worth_splitting ? 1 : std::min({count_, exec_.threads(), BlockShares::most_threads});
        const int share = blocks_of(count_, threads);
        // A pass says what it multiplies with next, and each of its matrices comes from memory, however
        // small.
        streamed_ = chosen_ != nullptr || exec_.upcoming().weights != nullptr ||
                    comes_from_memory(block_ * static_cast<std::size_t>(share));
        BlockShares shares(count_, threads,
                           streamed_ ? BlockShares::least : std::max(share, BlockShares::least));
        const auto run_thread = [&](int thread) { run_pieces(shares, thread); };
        if (shares.threads() > 1) return exec_.parallel(shares.threads(), run_thread);
        const FlushDenormals mode;
        run_thread(0);
    }

  private:
    void run_pieces(BlockShares& shares, int thread) const {
        if (!shares.any_left()) return;
        MatmulWork work = work_;
        std::byte* buffer = shared_;
        if (activations_.needed() && buffer == nullptr) {
            buffer = exec_.scratch(thread, activations_.bytes());
            activations_.prepare(buffer, 0, work.rows);
        }
        activations_.point(work, buffer);
        if (chosen_ != nullptr) {
            shares.take_all(thread, [&](int begin, int end, bool) { run_chosen(work, begin, end); });
            return;
        }
        if (!streamed_)
            return shares.take_all(thread, [&](int begin, int end, bool) { kernel_(work, begin, end); });
        ThreadStream stream(exec_, thread, work.weights, block_,
                            share_begin(count_, thread, shares.threads()),
                            share_begin(count_, thread + 1, shares.threads()));
        shares.take_all(thread, [&](int begin, int end, bool own) {
            WeightStream others = stream_of(work.weights, block_, begin, end);
            work.stream = own ? stream.get() : &others;
            kernel_(work, begin, end);
        });
    }

    void run_chosen(MatmulWork work, int begin, int end) const {
        float* const y = work.y;
        for_each_run(*chosen_, begin, end, [&](int first, int last, int place) {
            const int after = place + last - first;
            WeightStream stream = stream_of(work.weights, block_, first, last);
            if (after < end)
                stream.next = work.weights +
                              static_cast<std::size_t>((*chosen_)[static_cast<std::size_t>(after)]) * block_;
            work.stream = &stream;
            work.y = y + std::ptrdiff_t{place - first} * lanes;
            kernel_(work, first, last);
        });
    }

    Exec& exec_;
    const MatmulKernels& kernels_;
    const MatmulBlocks kernel_;
    const std::size_t block_;
    const std::span<const int>* const chosen_;
    const Activations activations_;
    int count_ = 0;
    MatmulWork work_;
    std::byte* shared_ = nullptr;
    bool streamed_ = false;
};

}  // namespace

void matmul(Exec& exec, const Matrix& weights, Rows<const float> x, Rows<float> y, const float* bias) {
    assert(x.cols == weights.k() && y.cols == weights.n() && x.rows == y.rows);
    if (x.rows == 0 || weights.n() == 0) return;
    if (weights.on_device()) return DeviceMatrixAccess::matmul(weights, nullptr, x, y, bias);
    Product(exec, weights, nullptr, x, y, bias).run();
}

void expect_matmul(Exec& exec, const Matrix* weights) {
    if (weights == nullptr || weights->data() == nullptr) return exec.expect({});
    exec.expect(
        {weights->data(), block_bytes(weights->precision(), weights->k()), blocks_of(weights->n(), lanes)});
}

void matmul_blocks(Exec& exec, const Matrix& weights, std::span<const int> blocks, Rows<const float> x,
                   Rows<float> y) {
    assert(x.cols == weights.k() && y.cols == static_cast<int>(blocks.size()) * lanes && x.rows == y.rows);
    if (x.rows == 0 || blocks.empty()) return;
    if (weights.on_device()) return DeviceMatrixAccess::matmul(weights, &blocks, x, y, nullptr);
    Product(exec, weights, &blocks, x, y, nullptr).run();
}

}  // namespace draftscope::kernels
