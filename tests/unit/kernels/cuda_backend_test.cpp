#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "base/rng.h"
#include "kernels/cpu/matmul/layout.h"
#include "kernels/ops/float16.h"
#include "kernels/packing.h"
#include "tests/support/fake_cuda/fake_gpu.h"

/// The CUDA back end's own code on a GPU that is none: what it enqueues is right in every order that streams
/// and events allow, and every call may fail.
namespace draftscope::testing {
namespace {

using kernels::Backend;
using kernels::DeviceBuffer;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<FakeGpu> schedules() {
    std::vector<FakeGpu> all = {{.schedule = FakeSchedule::late}, {.schedule = FakeSchedule::eager}};
    for (unsigned seed = 1; seed <= 20; ++seed)
        all.push_back({.schedule = FakeSchedule::random, .seed = seed});
    return all;
}

std::unique_ptr<Backend> opened(const FakeGpu& gpu, const kernels::CudaOptions& options = {}) {
    set_fake_gpu(gpu);
    auto backend = open_fake_cuda(options);
    return backend.ok() ? std::move(*backend) : nullptr;
}

/// Nothing is left on the GPU, and no handle was misused.
void expect_all_given_back() {
    const FakeGpuUse use = fake_gpu_use();
    EXPECT_EQ(use.allocations, 0);
    EXPECT_EQ(use.pinned, 0);
    EXPECT_EQ(use.streams, 0);
    EXPECT_EQ(use.events, 0);
    EXPECT_EQ(use.graphs, 0);
    EXPECT_EQ(use.executable_graphs, 0);
    EXPECT_THAT(use.faults, IsEmpty());
}

/// Two rows of floats on the device.
struct Numbers {
    static constexpr int count = 64;
    DeviceBuffer from, to;
    bool reserve(Backend& backend) {
        return from.reserve(backend, count * sizeof(float)) && to.reserve(backend, count * sizeof(float));
    }
    static std::vector<float> values(int first) {
        std::vector<float> all(count);
        std::iota(all.begin(), all.end(), static_cast<float>(first));
        return all;
    }
};

TEST(CudaBackend, TransfersKeepTheirOrder) {
    for (const FakeGpu& gpu : schedules()) {
        {
            const auto backend = opened(gpu);
            ASSERT_NE(backend, nullptr);
            Numbers numbers;
            ASSERT_TRUE(numbers.reserve(*backend));
            std::vector<std::vector<float>> found(4, std::vector<float>(Numbers::count));
            for (int turn = 0; turn < 4; ++turn) {
                std::vector<float> sent = Numbers::values(100 * turn);
                backend->upload(numbers.from.as<float>(), sent.data(), sent.size() * sizeof(float));
                std::fill(sent.begin(), sent.end(), -1.0f);  // the host memory may change at once
                backend->copy(numbers.to.as<float>(), numbers.from.as<float>(), sent.size() * sizeof(float));
                backend->download(found[turn].data(), numbers.to.as<float>(), sent.size() * sizeof(float));
            }
            ASSERT_TRUE(backend->synchronize().ok());
            for (int turn = 0; turn < 4; ++turn) EXPECT_EQ(found[turn], Numbers::values(100 * turn));
        }
        expect_all_given_back();
    }
}

/// Adds one row to the other `count` times, by a kernel.
void add_rows(Backend& backend, const float* from, float* to, int count) {
    for (int i = 0; i < count; ++i)
        backend.add({.x = from,
                     .x_stride = Numbers::count,
                     .rows = 1,
                     .cols = Numbers::count,
                     .activation = kernels::Activation::none,
                     .base = {},
                     .base_stride = 0,
                     .y = to,
                     .y_stride = Numbers::count});
}

TEST(CudaBackend, SideStreamsStartAfterWhatPrecedesAndEndBeforeTheJoin) {
    for (const FakeGpu& gpu : schedules()) {
        {
            const auto backend = opened(gpu);
            ASSERT_NE(backend, nullptr);
            Numbers numbers;
            DeviceBuffer apart;
            ASSERT_TRUE(numbers.reserve(*backend) && apart.reserve(*backend, Numbers::count * sizeof(float)));
            std::vector<float> found(Numbers::count);
            const std::vector<float> start = Numbers::values(5);
            constexpr std::size_t bytes = Numbers::count * sizeof(float);
            for (int turn = 0; turn < 3; ++turn) {
                backend->upload(numbers.from.as<float>(), start.data(), bytes);
                backend->on_side_stream(
                    [&] { backend->copy(apart.as<float>(), numbers.from.as<float>(), bytes); });
                backend->copy(numbers.to.as<float>(), numbers.from.as<float>(), bytes);  // at the same time
                backend->join_side_stream();
                backend->download(found.data(), apart.as<float>(), bytes);
                ASSERT_TRUE(backend->synchronize().ok());
                EXPECT_EQ(found, start);
            }
        }
        expect_all_given_back();
    }
}

/// Only a kernel right behind another one of its stream may start before that one ends.
TEST(CudaBackend, KernelsOverlapOnlyWithKernels) {
    constexpr std::size_t bytes = Numbers::count * sizeof(float);
    for (const FakeGpu& gpu : schedules()) {
        {
            const auto backend = opened(gpu);
            ASSERT_NE(backend, nullptr);
            Numbers numbers;
            DeviceBuffer apart;
            ASSERT_TRUE(numbers.reserve(*backend) && apart.reserve(*backend, bytes));
            const auto add = [&](int count) {
                add_rows(*backend, numbers.from.as<float>(), numbers.to.as<float>(), count);
            };
            const std::vector<float> sent = Numbers::values(1);
            backend->upload(numbers.from.as<float>(), sent.data(), bytes);
            add(3);  // two overlap
            backend->copy(apart.as<float>(), numbers.from.as<float>(), bytes);
            add(2);  // one
            backend->timer()->mark();
            add(1);
            backend->on_side_stream([&] { backend->copy(apart.as<float>(), numbers.to.as<float>(), bytes); });
            add(1);
            backend->join_side_stream();
            add(1);
            EXPECT_EQ(fake_gpu_use().early_launches, 3);
            const std::uint64_t key = backend->new_graph_key();
            for (int turn = 0; turn < 3; ++turn) backend->graph(key, [&] { add(3); });
            add(1);
            EXPECT_EQ(fake_gpu_use().early_launches, 3 + 2 + 2);  // of the first pass and of the capture
            std::vector<float> found(Numbers::count), expected = sent;
            backend->download(found.data(), numbers.to.as<float>(), bytes);
            ASSERT_TRUE(backend->synchronize().ok());
            for (float& value : expected) value *= 18;
            EXPECT_EQ(found, expected);
        }
        expect_all_given_back();
    }
}

/// Products ask for weights before they wait, so a kernel that writes weights ends before the next starts.
TEST(CudaBackend, NoKernelOverlapsWithAGather) {
    {
        const auto backend = opened({.hides_memory = true});
        ASSERT_NE(backend, nullptr);
        Numbers numbers;
        DeviceBuffer rows;
        ASSERT_TRUE(numbers.reserve(*backend) && rows.reserve(*backend, sizeof(std::int32_t)));
        add_rows(*backend, numbers.from.as<float>(), numbers.to.as<float>(), 2);
        EXPECT_EQ(fake_gpu_use().early_launches, 1);
        backend->gather({{numbers.from.as<kernels::half_t>(), 1, 64, 64},
                         rows.as<std::int32_t>(),
                         1,
                         numbers.to.as<kernels::half_t>()});
        add_rows(*backend, numbers.from.as<float>(), numbers.to.as<float>(), 2);
        EXPECT_EQ(fake_gpu_use().early_launches, 2);
        EXPECT_TRUE(backend->synchronize().ok());
    }
    expect_all_given_back();
}

/// The last block merges the results of all. On the side stream, a kernel of its own does.
TEST(CudaBackend, OneLaunchSelectsAsTwoDo) {
    constexpr int n = 4200, k = 10, stride = 64;
    {
        const auto backend = opened({});
        ASSERT_NE(backend, nullptr);
        Rng rng(3);
        std::vector<kernels::half_t> halves(std::size_t{n} * stride);
        for (kernels::half_t& value : halves) value = kernels::to_bf16(static_cast<float>(rng.normal()));
        DeviceBuffer weights, logits, ids, values, sums, scratch;
        const std::size_t max_scratch =
            std::max(kernels::topk_scratch_bytes(2, n, k), kernels::matmul_topk_scratch_bytes(1, n, k));
        ASSERT_TRUE(weights.reserve(*backend, halves.size() * 2) &&
                    logits.reserve(*backend, 2 * n * sizeof(float)) &&
                    ids.reserve(*backend, 3 * k * sizeof(std::int32_t)) &&
                    values.reserve(*backend, 3 * k * sizeof(float)) &&
                    sums.reserve(*backend, 3 * sizeof(float)) && scratch.reserve(*backend, max_scratch));
        backend->upload(weights.as<std::byte>(), halves.data(), halves.size() * 2);
        const auto select = [&] {
            kernels::MatmulOp product;
            product.weights = {weights.as<kernels::half_t>(), n, stride, stride};
            product.x = weights.as<kernels::half_t>();
            product.rows = 2;
            product.y = logits.as<float>();
            product.y_stride = n;
            backend->matmul(product);
            kernels::TopKOp topk;
            topk.logits = product.y;
            topk.stride = topk.support = n;
            topk.rows = 2;
            topk.k = k;
            topk.ids = ids.as<std::int32_t>();
            topk.values = values.as<float>();
            topk.logsumexp = sums.as<float>();
            topk.scratch = scratch.as<void>();
            backend->topk(topk);
            backend->matmul_topk({product.weights, product.x, 1, n, k, nullptr, topk.ids + 2 * k,
                                  topk.values + 2 * k, topk.logsumexp + 2, topk.scratch});
        };
        std::vector<std::int32_t> found[2] = {std::vector<std::int32_t>(3 * k),
                                              std::vector<std::int32_t>(3 * k)};
        std::vector<float> numbers[2] = {std::vector<float>(3 * k + 3), std::vector<float>(3 * k + 3)};
        for (const int side : {0, 1}) {
            const long before = fake_gpu_use().launches;
            if (side == 1)
                backend->on_side_stream(select);
            else
                for (int turn = 0; turn < 2; ++turn) select();  // the tickets are zero again
            backend->join_side_stream();
            EXPECT_EQ(fake_gpu_use().launches - before, side == 1 ? 5 : 6);
            backend->download(found[side].data(), ids.as<void>(), 3 * k * sizeof(std::int32_t));
            backend->download(numbers[side].data(), values.as<void>(), 3 * k * sizeof(float));
            backend->download(numbers[side].data() + 3 * k, sums.as<void>(), 3 * sizeof(float));
            ASSERT_TRUE(backend->synchronize().ok());
        }
        EXPECT_EQ(found[0], found[1]);
        EXPECT_EQ(numbers[0], numbers[1]);
        for (int i = 0; i < k; ++i)
            EXPECT_EQ(found[0][i], found[0][2 * k + i]);  // the head, of the first row
    }
    expect_all_given_back();
}

TEST(CudaBackend, OverlapCanBeSwitchedOff) {
    setenv("DRAFTSCOPE_GPU_OVERLAP", "0", 1);
    const auto backend = opened({});
    unsetenv("DRAFTSCOPE_GPU_OVERLAP");
    ASSERT_NE(backend, nullptr);
    Numbers numbers;
    ASSERT_TRUE(numbers.reserve(*backend));
    add_rows(*backend, numbers.from.as<float>(), numbers.to.as<float>(), 4);
    EXPECT_EQ(fake_gpu_use().early_launches, 0);
    EXPECT_TRUE(backend->synchronize().ok());
}

TEST(CudaBackend, WorkOnTheSideStreamIsTimedOnIt) {
    {
        const auto backend = opened({});
        ASSERT_NE(backend, nullptr);
        Numbers numbers;
        ASSERT_TRUE(numbers.reserve(*backend));
        backend->on_side_stream([&] {
            backend->timer()->mark();
            add_rows(*backend, numbers.from.as<float>(), numbers.to.as<float>(), 10);
            backend->timer()->mark();
        });
        backend->join_side_stream();
        ASSERT_TRUE(backend->synchronize().ok());
        EXPECT_NEAR(static_cast<double>(backend->timer()->elapsed_ns(0, 1)), 10e3, 10);  // 1 us each
    }
    expect_all_given_back();
}

TEST(CudaBackend, WorkWithASideStreamBecomesAGraph) {
    for (const FakeGpu& gpu : schedules()) {
        {
            const auto backend = opened(gpu);
            ASSERT_NE(backend, nullptr);
            Numbers numbers;
            DeviceBuffer apart;
            ASSERT_TRUE(numbers.reserve(*backend) && apart.reserve(*backend, Numbers::count * sizeof(float)));
            constexpr std::size_t bytes = Numbers::count * sizeof(float);
            const std::uint64_t key = backend->new_graph_key();
            std::vector<float> found(Numbers::count);
            for (int turn = 0; turn < 5; ++turn) {
                const std::vector<float> sent = Numbers::values(turn);
                backend->upload(numbers.from.as<float>(), sent.data(), bytes);
                backend->graph(key, [&] {
                    backend->on_side_stream(
                        [&] { backend->copy(apart.as<float>(), numbers.from.as<float>(), bytes); });
                    backend->join_side_stream();
                    backend->copy(numbers.to.as<float>(), apart.as<float>(), bytes);
                });
                backend->download(found.data(), numbers.to.as<float>(), bytes);
                ASSERT_TRUE(backend->synchronize().ok());
                EXPECT_EQ(found, sent) << turn;
            }
            EXPECT_EQ(backend->stats().graphs, 1);
            EXPECT_EQ(backend->stats().graphs_failed, 0) << backend->stats().graph_error;
            EXPECT_EQ(fake_gpu_use().graph_launches, 4);  // the first pass runs op by op
        }
        expect_all_given_back();
    }
}

TEST(CudaBackend, WhatACaptureRefusesRunsWithoutAGraph) {
    struct Refused {
        const char* error;
        std::function<void(Backend&, Numbers&)> work;
    };
    constexpr std::size_t bytes = Numbers::count * sizeof(float);
    const std::vector<Refused> all = {
        {"cudaErrorStreamCaptureUnsupported", [](Backend& b, Numbers&) { (void)b.synchronize(); }},
        {"cudaErrorStreamCaptureUnjoined",
         [](Backend& b, Numbers& n) {
             b.on_side_stream([&] { b.copy(n.to.as<float>(), n.from.as<float>(), bytes); });
         }},
    };
    for (const Refused& one : all) {
        {
            const auto backend = opened({});
            ASSERT_NE(backend, nullptr);
            Numbers numbers;
            ASSERT_TRUE(numbers.reserve(*backend));
            std::vector<float> found(Numbers::count);
            const std::uint64_t key = backend->new_graph_key();
            for (int turn = 0; turn < 4; ++turn) {
                const std::vector<float> sent = Numbers::values(turn);
                backend->upload(numbers.from.as<float>(), sent.data(), bytes);
                backend->graph(key, [&] {
                    backend->copy(numbers.to.as<float>(), numbers.from.as<float>(), bytes);
                    one.work(*backend, numbers);
                });
                backend->join_side_stream();
                backend->download(found.data(), numbers.to.as<float>(), bytes);
                ASSERT_TRUE(backend->synchronize().ok()) << one.error;
                EXPECT_EQ(found, sent) << one.error << " " << turn;
            }
            EXPECT_EQ(backend->stats().graphs, 0);
            EXPECT_EQ(backend->stats().graphs_failed, 1);
            EXPECT_THAT(backend->stats().graph_error, HasSubstr(one.error));
        }
        expect_all_given_back();
    }
}

/// Uploads, a graph with a side stream, a download; returns the error, or "" and the result.
std::string all_calls(std::vector<float>& found) {
    auto made = open_fake_cuda({});
    if (!made.ok()) return made.error().message;
    Backend& backend = **made;
    Numbers numbers;
    DeviceBuffer apart;
    constexpr std::size_t bytes = Numbers::count * sizeof(float);
    if (!numbers.reserve(backend) || !apart.reserve(backend, bytes)) return "out of memory";
    const std::uint64_t key = backend.new_graph_key();
    for (int turn = 0; turn < 3; ++turn) {
        const std::vector<float> sent = Numbers::values(turn);
        backend.upload(numbers.from.as<float>(), sent.data(), bytes);
        backend.timer()->mark();
        backend.graph(key, [&] {
            backend.on_side_stream([&] { backend.copy(apart.as<float>(), numbers.from.as<float>(), bytes); });
            backend.join_side_stream();
            add_rows(backend, apart.as<float>(), numbers.from.as<float>(), 2);
        });
        backend.timer()->mark();
        backend.download(found.data(), numbers.from.as<float>(), bytes);
        if (const Status done = backend.synchronize(); !done.ok()) return done.error().message;
        (void)backend.timer()->elapsed_ns(0, 1);
        backend.timer()->reset();
    }
    return "";
}

TEST(CudaBackend, EveryCallMayFail) {
    set_fake_gpu({});
    std::vector<float> expected(Numbers::count), found(Numbers::count);
    ASSERT_EQ(all_calls(expected), "");
    const long calls = fake_gpu_use().calls;
    EXPECT_GT(calls, 30);
    long survived = 0;
    for (const int error : {999 /* unknown */, 2 /* memory */})
        for (long call = 0; call < calls; ++call) {
            set_fake_gpu({.failing_call = call, .error = error});
            const std::string message = all_calls(found);
            if (message.empty()) {  // a graph, an event or pinned memory, which are replaced
                EXPECT_EQ(found, expected) << call;
                ++survived;
            } else {
                EXPECT_THAT(message, ::testing::AnyOf(HasSubstr("the fake GPU refused a call"),
                                                      HasSubstr("memory"), HasSubstr("properties")))
                    << call;
            }
            expect_all_given_back();
        }
    EXPECT_GT(survived, 0);
    EXPECT_LT(survived, 2 * calls);
}

TEST(CudaBackend, AFailedKernelEndsTheSessionWithItsError) {
    set_fake_gpu({});
    std::vector<float> found(Numbers::count);
    ASSERT_EQ(all_calls(found), "");
    const long work = fake_gpu_use().work;
    EXPECT_GT(work, 10);
    for (long one = 0; one < work; ++one) {
        set_fake_gpu({.failing_work = one});
        EXPECT_THAT(all_calls(found), ::testing::AnyOf(HasSubstr("cudaErrorIllegalAddress"), "out of memory"))
            << one;
        expect_all_given_back();
    }
}

/// A cause and, after "; ", what to do. `doctor` splits the line there.
TEST(CudaBackend, AGpuThatCannotBeUsedIsOneLineWithWhatToDo) {
    const struct {
        FakeGpu gpu;
        const char* expected;
    } cases[] = {
        {{.driver = 0}, "no NVIDIA driver on this machine; install one for GPU runs"},
        {{.driver = 12040}, "the NVIDIA driver is for CUDA 12.4, this build needs 13.0; update the driver"},
        {{.devices = 0},
         "the driver shows no GPU; pass one into this container, check CUDA_VISIBLE_DEVICES, or create an "
         "instance if it is in MIG mode (nvidia-smi mig -cgi 0 -C)"},
        {{.major = 7}, "kernels on the host is sm_70; use a GPU of sm_80 or later, or --backend cpu"},
    };
    for (const auto& one : cases) {
        set_fake_gpu(one.gpu);
        const kernels::DeviceProbe found = probe_fake_cuda();
        EXPECT_FALSE(found.available);
        EXPECT_EQ(found.why_not, one.expected);
        const auto opened = open_fake_cuda();
        ASSERT_FALSE(opened.ok());
        EXPECT_EQ(opened.error().message, "CUDA is not available: " + found.why_not);
        EXPECT_EQ(opened.error().kind, ErrorKind::bad_input);
    }
    set_fake_gpu({});
    EXPECT_TRUE(probe_fake_cuda().available);
}

/// A product of `rows` rows by the kernels or, if `library`, by cuBLASLt.
std::vector<float> product(Backend& backend, bool library, int rows, int n, int k, bool with_bias,
                           bool accumulate) {
    EXPECT_TRUE(backend.use_cublaslt(library ? 1 : 0).ok());
    const int stride = kernels::padded_columns(k), y_stride = n + 3;
    Rng rng(7);
    const auto halves = [&](int count) {
        std::vector<kernels::half_t> values(static_cast<std::size_t>(count) * stride, 0);
        for (std::size_t i = 0; i < values.size(); ++i) {
            const auto value = static_cast<float>(rng.normal());
            if (static_cast<int>(i % stride) < k)
                values[i] = backend.dtype() == kernels::Float16Kind::f16 ? kernels::float_to_f16(value)
                                                                         : kernels::to_bf16(value);
        }
        return values;
    };
    const auto floats = [&](int count) {
        std::vector<float> values(count);
        for (float& value : values) value = static_cast<float>(rng.normal());
        return values;
    };
    const auto w = halves(n), x = halves(rows);
    const auto bias = floats(n);
    auto y = floats(rows * y_stride);
    DeviceBuffer on_device[4];
    const auto sent = [&](DeviceBuffer& buffer, const auto& values) {
        EXPECT_TRUE(buffer.reserve(backend, values.size() * sizeof values[0]));
        backend.upload(buffer.as<std::byte>(), values.data(), values.size() * sizeof values[0]);
    };
    sent(on_device[0], w);
    sent(on_device[1], x);
    sent(on_device[2], bias);
    sent(on_device[3], y);
    kernels::MatmulOp op;
    op.weights = {on_device[0].as<kernels::half_t>(), n, k, stride};
    op.x = on_device[1].as<kernels::half_t>();
    op.rows = rows;
    op.y = on_device[3].as<float>();
    op.y_stride = y_stride;
    op.bias = with_bias ? on_device[2].as<float>() : nullptr;
    op.accumulate = accumulate;
    backend.matmul(op);
    backend.download(y.data(), op.y, y.size() * sizeof(float));
    EXPECT_TRUE(backend.synchronize().ok());
    return y;
}

TEST(CudaBackend, ProductsByTheLibraryAreThoseOfTheKernels) {
    ASSERT_TRUE(load_fake_cublaslt());
    for (const auto dtype : {kernels::Float16Kind::bf16, kernels::Float16Kind::f16}) {
        {
            const auto backend = opened({});
            ASSERT_NE(backend, nullptr);
            backend->set_dtype(dtype);
            int products = 0;
            for (const int rows : {1, 5, 17})
                for (const bool with_bias : {false, true})
                    for (const bool accumulate : {false, true}) {
                        if (with_bias && accumulate) continue;
                        const auto by_library = product(*backend, true, rows, 37, 90, with_bias, accumulate);
                        const auto by_kernels = product(*backend, false, rows, 37, 90, with_bias, accumulate);
                        EXPECT_THAT(by_library, ::testing::Pointwise(::testing::FloatNear(1e-4f), by_kernels))
                            << rows << " rows";
                        ++products;
                    }
            EXPECT_EQ(backend->stats().library_products, products);
        }
        expect_all_given_back();
    }
}

TEST(CudaBackend, RandomMatricesAreMadeOnTheDeviceWithTheBitsOfPackedOnes) {
    set_fake_gpu({.memory_bytes = std::size_t{8} << 20});
    {
        const auto exec = *open_fake_cuda();
        constexpr int k = 100;
        const std::vector<kernels::RandomRows> parts = {{30, {5, 0.5f}}, {11, {6, 2.0f}}};
        const auto made = kernels::pack_random(*exec, k, parts);
        ASSERT_TRUE(made.has_value());
        EXPECT_EQ(fake_gpu_use().uploads, 0);
        const kernels::Matrix packed =
            kernels::Matrix::pack(*exec, kernels::Precision::bf16, 41, k, [&](int row, float* out) {
                const bool first = row < parts[0].rows;
                const kernels::RandomValues& values = parts[first ? 0 : 1].values;
                const std::uint32_t start = values.start_of(first ? row : row - parts[0].rows);
                for (int i = 0; i < k; ++i) out[i] = values.at(start, i);
            });
        ASSERT_EQ(made->n(), packed.n());
        std::vector<float> a(k), b(k);
        for (int row = 0; row < packed.n(); ++row) {
            made->unpack_row(row, a);
            packed.unpack_row(row, b);
            EXPECT_EQ(a, b) << "row " << row;
        }
        const std::vector<kernels::RandomRows> too_many = {{1 << 20, {5, 0.5f}}};
        ASSERT_TRUE(kernels::pack_random(*exec, k, too_many).has_value());
        const Status done = exec->synchronize();
        ASSERT_FALSE(done.ok());
        EXPECT_THAT(done.error().message, HasSubstr("1048576 x 100"));
    }
    expect_all_given_back();
    const auto cpu = kernels::make_cpu_backend(1);
    const std::vector<kernels::RandomRows> parts = {{30, {5, 0.5f}}};
    EXPECT_FALSE(kernels::pack_random(*cpu, 100, parts).has_value());
}

TEST(CudaBackend, LargeTransfersAndSmallMemory) {
    constexpr std::size_t bytes = std::size_t{40} << 20;  // more than a quarter of the staging memory
    {
        const auto backend = opened({.memory_bytes = std::size_t{200} << 20});
        ASSERT_NE(backend, nullptr);
        DeviceBuffer large, too_large;
        ASSERT_TRUE(large.reserve(*backend, bytes));
        EXPECT_FALSE(too_large.reserve(*backend, std::size_t{180} << 20));
        std::vector<float> sent(bytes / sizeof(float), 3.0f), found(sent.size());
        sent.back() = 4.0f;
        backend->upload(large.as<float>(), sent.data(), bytes);
        for (int turn = 0; turn < 2; ++turn) backend->download(found.data(), large.as<float>(), bytes);
        ASSERT_TRUE(backend->synchronize().ok());
        EXPECT_EQ(found, sent);
    }
    expect_all_given_back();
}

}  // namespace
}  // namespace draftscope::testing
