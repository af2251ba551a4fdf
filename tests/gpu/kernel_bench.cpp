// The kernel benchmark of `draftscope kernels --backend cuda --json` as a separate program, part of the
// kernel lab (tests/gpu/lab.sh).
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "kernels/device_bench.h"

namespace draftscope {
namespace {

constexpr const char* usage =
    "usage: kernel_bench [--vocab V] [--hidden D] [--rank R,...] [--gather N,...] [--k K] [--rows M,...] "
    "[--json]\n";

[[noreturn]] void refuse(const std::string& what) {
    std::fprintf(stderr, "kernel_bench: %s\n%s", what.c_str(), usage);
    std::exit(2);
}

int whole_number(const std::string& name, const std::string& text) {
    char* end = nullptr;
    const long value = std::strtol(text.c_str(), &end, 10);
    if (text.empty() || *end != '\0' || value < 1 || value > (1 << 24))
        refuse(fmt::format("{} {}: not a whole number from 1 to 2^24", name, text));
    return static_cast<int>(value);
}

std::vector<int> whole_numbers(const std::string& name, const std::string& text) {
    std::vector<int> values;
    for (std::size_t begin = 0, end = 0; end != std::string::npos; begin = end + 1) {
        end = text.find(',', begin);
        values.push_back(whole_number(name, text.substr(begin, end - begin)));
    }
    return values;
}

kernels::DeviceBenchOptions parse_options(int argc, char** argv) {
    kernels::DeviceBenchOptions options;
    options.rank.clear();
    for (int i = 1; i < argc; ++i) {
        const std::string name = argv[i];
        if (name == "--json") continue;
        if (i + 1 == argc) refuse(fmt::format("{} needs a value or is unknown", name));
        const std::string value = argv[++i];
        std::vector<int>* const list = name == "--rows"     ? &options.rows
                                       : name == "--rank"   ? &options.rank
                                       : name == "--gather" ? &options.gather
                                                            : nullptr;
        if (list != nullptr) {
            *list = whole_numbers(name, value);
            continue;
        }
        int* const to = name == "--vocab"    ? &options.vocab
                        : name == "--hidden" ? &options.hidden
                        : name == "--k"      ? &options.k
                                             : nullptr;
        if (to == nullptr) refuse(fmt::format("{}: unknown", name));
        *to = whole_number(name, value);
    }
    if (options.rank.empty()) options.rank = {std::max(1, options.hidden / 8)};
    options.trimmed = std::max(1, options.vocab / 4);
    for (int& count : options.gather) count = std::min(count, options.vocab);
    return options;
}

void print_json(const kernels::DeviceBenchOptions& options, const kernels::DeviceBenchReport& report) {
    double read = 0;
    for (const kernels::DeviceMeasured& m : report.ops)
        if (m.op.starts_with("read ") && m.bytes > 2.0 * static_cast<double>(report.device.l2_bytes))
            read = std::max(read, m.gb_per_s());
    fmt::print(R"({{"device": "{}", "vocab": {}, "hidden": {}, "rank": [{}], "read_gb_per_s": {:.1f}, )"
               R"("copy_gb_per_s": {:.1f}, "library": "{}", "ops": [)",
               report.device.name, options.vocab, options.hidden,
               fmt::format("{}", fmt::join(options.rank, ", ")), read, report.copy_gb_per_s, report.library);
    const char* separator = "";
    for (const kernels::DeviceMeasured& m : report.ops) {
        fmt::print(
            "{}\n"
            R"({{"op": "{}", "mode": "{}", "rows": {}, "median_us": {:.3f}, "best_us": {:.3f}, "spread_us": {:.3f}, )"
            R"("bytes": {:.0f}, "gb_per_s": {:.1f}, "nu": {:.4f}}})",
            separator, m.op, m.mode, m.rows, m.median_us, m.best_us, m.spread_us, m.bytes, m.gb_per_s(),
            m.nu);
        separator = ",";
    }
    fmt::print("]}}\n");
}

int run(int argc, char** argv) {
    kernels::DeviceBenchOptions options = parse_options(argc, argv);
    options.on_measured = [](const kernels::DeviceMeasured& m) {
        fmt::print(stderr,
                   R"({{"op": "{}", "mode": "{}", "rows": {}, "median_us": {:.3f}}})"
                   "\n",
                   m.op, m.mode, m.rows, m.median_us);
    };
    const auto report = kernels::bench_cuda(options);
    if (!report.ok()) {
        std::fprintf(stderr, "kernel_bench: %s\n", report.error().message.c_str());
        return 1;
    }
    print_json(options, *report);
    return 0;
}

}  // namespace
}  // namespace draftscope

int main(int argc, char** argv) {
    return draftscope::run(argc, argv);
}
