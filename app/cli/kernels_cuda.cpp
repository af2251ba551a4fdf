#include "app/cli/kernels_cuda.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <vector>

#include "app/cli/cli.h"
#include "app/cli/tables.h"

namespace draftscope::cli {
namespace {

using kernels::DeviceBenchOptions;
using kernels::DeviceBenchReport;
using kernels::DeviceMeasured;

/// The fastest read: what a share of the bandwidth is a share of.
double read_gb_per_s(const DeviceBenchReport& report) {
    double best = 0;
    for (const DeviceMeasured& m : report.ops)
        if (m.op.starts_with("read ") && m.bytes > 2.0 * static_cast<double>(report.device.l2_bytes))
            best = std::max(best, m.gb_per_s());
    return best;
}

void print_json(const DeviceBenchOptions& options, const DeviceBenchReport& report) {
    nlohmann::json ops = nlohmann::json::array();
    const double read = read_gb_per_s(report);
    for (const DeviceMeasured& m : report.ops)
        ops.push_back({{"op", m.op},
                       {"mode", m.mode},
                       {"rows", m.rows},
                       {"median_us", m.median_us},
                       {"best_us", m.best_us},
                       {"bytes", m.bytes},
                       {"gb_per_s", m.gb_per_s()},
                       {"floor_us", read > 0 ? m.bytes / (read * 1e3) : 0},
                       {"nu", m.nu > 0 ? nlohmann::json(m.nu) : nlohmann::json(nullptr)}});
    const kernels::DeviceInfo& gpu = report.device;
    const nlohmann::json document = {{"backend", "cuda"},
                                     {"device", gpu.name},
                                     {"architecture", gpu.architecture},
                                     {"driver", gpu.driver},
                                     {"runtime", gpu.runtime},
                                     {"processors", gpu.processors},
                                     {"l2_bytes", gpu.l2_bytes},
                                     {"persisting_l2_bytes", gpu.persisting_l2_bytes},
                                     {"access_window_bytes", gpu.access_window_bytes},
                                     {"shared_bytes", gpu.shared_bytes},
                                     {"clocks_before", report.clocks_before},
                                     {"clocks_after", report.clocks_after},
                                     {"read_gb_per_s", read},
                                     {"copy_gb_per_s", report.copy_gb_per_s},
                                     {"vocab", options.vocab},
                                     {"hidden", options.hidden},
                                     {"rank", options.rank},
                                     {"ops", ops}};
    std::printf("%s\n", document_text(document).c_str());
}

void print_csv(const DeviceBenchReport& report) {
    std::printf("op,mode,rows,median_us,best_us,bytes,gb_per_s,nu\n");
    for (const DeviceMeasured& m : report.ops)
        std::printf("%s,%s,%d,%.3f,%.3f,%.0f,%.3f,%.4f\n", m.op.c_str(), m.mode.c_str(), m.rows, m.median_us,
                    m.best_us, m.bytes, m.gb_per_s(), m.nu);
}

void print_table(const DeviceBenchOptions& options, const DeviceBenchReport& report) {
    const double read = read_gb_per_s(report);
    std::printf("%s (%s), driver for CUDA %s; SM clock, power, temperature: %s before, %s after\n",
                report.device.name.c_str(), report.device.architecture.c_str(), report.device.driver.c_str(),
                report.clocks_before.empty() ? "unknown" : report.clocks_before.c_str(),
                report.clocks_after.empty() ? "unknown" : report.clocks_after.c_str());
    std::printf("V %d, d %d, bf16; reads %.0f GB/s, copies %.0f GB/s\n\n", options.vocab, options.hidden,
                read, report.copy_gb_per_s);
    std::vector<std::vector<std::string>> rows;
    for (const DeviceMeasured& m : report.ops)
        rows.push_back({m.op, m.mode, m.rows > 0 ? std::to_string(m.rows) : "-",
                        fmt::format("{:.2f}", m.median_us), fmt::format("{:.2f}", m.best_us),
                        fmt::format("{:.2f}", m.bytes / 1e6), fmt::format("{:.0f}", m.gb_per_s()),
                        read > 0 && m.bytes > 0 ? fmt::format("{:.2f}", m.bytes / (read * 1e3)) : "-",
                        m.nu > 0 ? fmt::format("{:.3f}", m.nu) : "-"});
    std::printf(
        "%s",
        format_table({"op", "mode", "rows", "median us", "best us", "MB", "GB/s", "floor us", "nu"}, rows)
            .c_str());
}

}  // namespace

int do_kernels_cuda(const DeviceBenchOptions& options, TableForm form) {
    const auto done = kernels::bench_cuda(options);
    if (!done.ok()) return report(done.error());
    if (form == TableForm::json) {
        print_json(options, *done);
    } else if (form == TableForm::csv) {
        print_csv(*done);
    } else {
        print_table(options, *done);
    }
    return 0;
}

}  // namespace draftscope::cli
