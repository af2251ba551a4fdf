#include "app/cli/kernels_cuda.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "app/cli/cli.h"
#include "app/cli/tables.h"
#include "app/jobs/kernels/torch_times.h"
#include "base/fields.h"

namespace draftscope::cli {
namespace {

using kernels::DeviceBenchOptions;
using kernels::DeviceBenchReport;
using kernels::DeviceMeasured;

/// Returns the fastest measured read, the reference of bandwidth shares.
double read_gb_per_s(const DeviceBenchReport& report) {
    double best = 0;
    for (const DeviceMeasured& m : report.ops)
        if (m.op.starts_with("read ") && m.bytes > 2.0 * static_cast<double>(report.device.l2_bytes))
            best = std::max(best, m.gb_per_s());
    return best;
}

/// Returns PyTorch's time divided by ours; 0 if PyTorch has no such op.
double torch_ratio(const DeviceMeasured& m, const TorchTimes& torch) {
    const TorchTime* const peer = torch.find(m);
    return peer != nullptr && m.median_us > 0 ? peer->median_us / m.median_us : 0;
}

nlohmann::json torch_json(const TorchTimes& torch) {
    if (torch.version.empty()) return nullptr;
    return write_fields(
        join(DS_FIELDS(TorchTimes, version, device),
             as(list_of(DS_FIELDS(TorchTime, op, rows, median_us, best_us)), DS_FIELDS(TorchTimes, ops))),
        torch);
}

void print_json(const DeviceBenchOptions& options, const DeviceBenchReport& report, const TorchTimes& torch) {
    const double read = read_gb_per_s(report);
    const auto op_fields = join(
        DS_FIELDS(DeviceMeasured, op, mode, rows, median_us, best_us, spread_us, bytes, gb_per_s),
        field("floor_us", [=](const DeviceMeasured& m) { return read > 0 ? m.bytes / (read * 1e3) : 0; }),
        null_if_none(join(
            DS_FIELDS(DeviceMeasured, nu),
            field(
                "tflops",
                [](const DeviceMeasured& m) { return m.median_us > 0 ? m.flops / (m.median_us * 1e6) : 0; }),
            field("torch_over_ours", [&](const DeviceMeasured& m) { return torch_ratio(m, torch); }))));
    nlohmann::json document =
        write_fields(join(DS_FIELDS(DeviceBenchReport, largest_cluster, clocks_before, clocks_after,
                                    copy_gb_per_s, library, why_no_library, library_wins_from),
                          field("notes", &DeviceBenchReport::not_timed),
                          as(list_of(op_fields), DS_FIELDS(DeviceBenchReport, ops))),
                     report);
    using Info = kernels::DeviceInfo;
    document.update(write_fields(join(field("device", &Info::name),
                                      DS_FIELDS(Info, architecture, driver, runtime, processors, l2_bytes,
                                                persisting_l2_bytes, access_window_bytes, shared_bytes)),
                                 report.device));
    document.update(write_fields(DS_FIELDS(DeviceBenchOptions, vocab, hidden, gather, rank), options));
    if (options.rank.size() == 1) document["rank"] = options.rank[0];  // a number, as it was before lists
    document.update({{"backend", "cuda"}, {"read_gb_per_s", read}, {"torch", torch_json(torch)}});
    print_document(document);
}

void print_csv(const DeviceBenchReport& report, const TorchTimes& torch) {
    print("op,mode,rows,median_us,best_us,bytes,gb_per_s,nu,torch_over_ours,spread_us\n");
    for (const DeviceMeasured& m : report.ops)
        print("{},{},{},{:.3f},{:.3f},{:.0f},{:.3f},{:.4f},{:.4f},{:.3f}\n", m.op, m.mode, m.rows,
              m.median_us, m.best_us, m.bytes, m.gb_per_s(), m.nu, torch_ratio(m, torch), m.spread_us);
    for (const std::string& note : report.not_timed) fmt::print(stderr, "note: {}\n", note);
}

void print_table(const DeviceBenchOptions& options, const DeviceBenchReport& report,
                 const TorchTimes& torch) {
    const double read = read_gb_per_s(report);
    print("{} ({}), driver for CUDA {}; SM and memory clock, power, temperature: {} before, {} after\n",
          report.device.name, report.device.architecture, report.device.driver,
          report.clocks_before.empty() ? "unknown" : report.clocks_before,
          report.clocks_after.empty() ? "unknown" : report.clocks_after);
    constexpr double mb = 1e-6;
    print(
        "L2 {:.0f} MB, of which {:.0f} may be set aside, windows up to {:.0f} MB; shared memory {} bytes a "
        "block, clusters of up to {} blocks\n",
        mb * static_cast<double>(report.device.l2_bytes),
        mb * static_cast<double>(report.device.persisting_l2_bytes),
        mb * static_cast<double>(report.device.access_window_bytes), report.device.shared_bytes,
        report.largest_cluster);
    print("V {}, d {}, bf16; reads {:.0f} GB/s, copies {:.0f} GB/s\n\n", options.vocab, options.hidden, read,
          report.copy_gb_per_s);
    std::vector<std::vector<std::string>> rows;
    for (const DeviceMeasured& m : report.ops)
        rows.push_back({m.op, m.mode, m.rows > 0 ? std::to_string(m.rows) : "-",
                        fmt::format("{:.2f}", m.median_us), fmt::format("{:.2f}", m.best_us),
                        fmt::format("{:.2f}", m.spread_us), fmt::format("{:.2f}", m.bytes / 1e6),
                        fmt::format("{:.0f}", m.gb_per_s()),
                        read > 0 && m.bytes > 0 ? fmt::format("{:.2f}", m.bytes / (read * 1e3)) : "-",
                        m.nu > 0 ? fmt::format("{:.3f}", m.nu) : "-",
                        torch_ratio(m, torch) > 0 ? fmt::format("{:.2f}x", torch_ratio(m, torch)) : "-"});
    print("{}", format_table({"op", "mode", "rows", "median us", "best us", "spread us", "MB", "GB/s",
                              "floor us", "nu", "torch/ours"},
                             rows));
    for (const std::string& note : report.not_timed) print("note: {}\n", note);
    if (report.library.empty())
        print("\nproducts of a library: not timed; {}\n", report.why_no_library);
    else if (report.library_wins_from == 0)
        print("\n{} is not faster than our products at these rows: --numerics fast has no benefit\n",
              report.library);
    else
        print("\n{} is faster for {} rows and more: use --numerics fast:{}\n", report.library,
              report.library_wins_from, report.library_wins_from);
    if (!torch.version.empty())
        print("PyTorch {} on {}, cold; torch/ours: ratio of its time to ours\n", torch.version, torch.device);
}

}  // namespace

int do_kernels_cuda(const DeviceBenchOptions& options, std::vector<std::string> notes, TableForm form,
                    const std::string& python) {
    if (!python.empty())
        if (const Status torch_status = check_torch(python); !torch_status.ok())
            return report(torch_status.error());
    auto done = kernels::bench_cuda(options);
    if (!done.ok()) return report(done.error());
    done->not_timed.insert(done->not_timed.begin(), notes.begin(), notes.end());
    TorchTimes torch;
    if (!python.empty()) {
        auto timed = time_torch(python, options);  // after ours has released its device memory
        if (!timed.ok()) return report(timed.error());
        torch = std::move(*timed);
    }
    if (form == TableForm::json) {
        print_json(options, *done, torch);
    } else if (form == TableForm::csv) {
        print_csv(*done, torch);
    } else {
        print_table(options, *done, torch);
    }
    return 0;
}

}  // namespace draftscope::cli
