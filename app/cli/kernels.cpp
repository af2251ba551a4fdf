#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <vector>

#include "app/cli/cli.h"
#include "app/cli/options.h"
#include "app/cli/tables.h"
#include "app/jobs/kernels/kernels_job.h"
#include "base/fields.h"

namespace draftscope::cli {
namespace {

struct KernelsArguments {
    KernelSettings settings;
    std::string backend = "cpu";
    std::string torch;
    bool json = false;
    bool csv = false;
};

void print_json(const KernelReport& report) {
    nlohmann::json document = write_fields(
        join(DS_FIELDS(KernelReport, isa, threads, notes),
             as(list_of(join(
                    DS_FIELDS(KernelTime, op, precision, rows, calls, median_us, best_us, bytes, gb_per_s),
                    field("scattered_probe_gb_per_s", &KernelTime::scattered_probe),
                    field("share_of_probe", [&](const KernelTime& m) { return report.share(m); }))),
                DS_FIELDS(KernelReport, ops))),
        report);
    document.update(write_fields(DS_FIELDS(KernelSettings, vocab, hidden), report.settings));
    document["probe_gb_per_s"] = {report.probe_before, report.probe_after};
    print_document(document);
}

void print_csv(const KernelReport& report) {
    print(
        "op,precision,rows,calls,median_us,best_us,bytes,gb_per_s,share_of_probe,scattered_probe_gb_per_s\n");
    for (const KernelTime& m : report.ops)
        print("{},{},{},{},{:.3f},{:.3f},{:.0f},{:.3f},{:.4f},{:.3f}\n", m.op, m.precision, m.rows, m.calls,
              m.median_us, m.best_us, m.bytes, m.gb_per_s(), report.share(m), m.scattered_probe);
    for (const std::string& note : report.notes) fmt::print(stderr, "note: {}\n", note);
}

void print_table(const KernelReport& report) {
    print("V {}, d {}, {} threads, kernels {}; reads {:.1f} GB/s before, {:.1f} GB/s after\n\n",
          report.settings.vocab, report.settings.hidden, report.threads, report.isa, report.probe_before,
          report.probe_after);
    std::vector<std::vector<std::string>> rows;
    for (const KernelTime& m : report.ops)
        rows.push_back({m.op, m.precision, m.rows > 0 ? std::to_string(m.rows) : "-",
                        fmt::format("{:.1f}", m.median_us), fmt::format("{:.1f}", m.best_us),
                        fmt::format("{:.2f}", m.bytes / 1e6), fmt::format("{:.1f}", m.gb_per_s()),
                        positive(m.scattered_probe, 1), fmt::format("{:.0f} %", 100 * report.share(m))});
    print("{}", format_table({"op", "precision", "rows", "median us", "best us", "MB", "GB/s",
                              "scattered GB/s", "of probe"},
                             rows));
    for (const std::string& note : report.notes) print("note: {}\n", note);
}

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

void print_csv(const DeviceBenchOptions&, const DeviceBenchReport& report, const TorchTimes& torch) {
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
        rows.push_back(
            {m.op, m.mode, m.rows > 0 ? std::to_string(m.rows) : "-", fmt::format("{:.2f}", m.median_us),
             fmt::format("{:.2f}", m.best_us), fmt::format("{:.2f}", m.spread_us),
             fmt::format("{:.2f}", m.bytes / 1e6), fmt::format("{:.0f}", m.gb_per_s()),
             read > 0 && m.bytes > 0 ? fmt::format("{:.2f}", m.bytes / (read * 1e3)) : "-", positive(m.nu, 3),
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

template <typename... Report>
int print_report(const KernelsArguments& options, const Report&... report) {
    if (options.json)
        print_json(report...);
    else if (options.csv)
        print_csv(report...);
    else
        print_table(report...);
    return 0;
}

Result<int> do_on_cuda(KernelSettings settings, const KernelsArguments& options) {
    for (const int value : {settings.vocab, settings.hidden, settings.k})
        if (value < 1) return bad_input("kernels: sizes must be at least 1, found {}", value);
    for (const auto& [name, values] :
         {std::pair{"--rows", settings.rows}, std::pair{"--rank", settings.ranks},
          std::pair{"--gather", settings.gather}})
        for (const int value : values)
            if (value < 1) return bad_input("{} {}: must be at least 1", name, value);
    std::vector<std::string> notes = fit_kernel_sizes(settings);
    DeviceBenchOptions device{.vocab = settings.vocab,
                              .hidden = settings.hidden,
                              .rank = settings.ranks,
                              .trimmed = std::max(1, settings.vocab / 4),
                              .gather = settings.gather,
                              .k = settings.k,
                              .rows = settings.rows};
    if (options.json)
        device.on_measured = [](const DeviceMeasured& m) {
            fmt::print(stderr, "{}\n",
                       write_fields(DS_FIELDS(DeviceMeasured, op, mode, rows, median_us), m).dump());
        };
    if (settings.vocab > kernels::max_router_columns)
        return bad_input("--vocab {}: on a GPU at most {}", settings.vocab, kernels::max_router_columns);
    if (!kernels::can_topk(settings.vocab, settings.k))
        return bad_input("--k {}: on a GPU at most {}", settings.k, kernels::max_topk);
    const std::string& python = options.torch;
    if (!python.empty()) DS_TRY(check_torch(python));
    DS_ASSIGN(DeviceBenchReport done, kernels::bench_cuda(device));
    done.not_timed.insert(done.not_timed.begin(), notes.begin(), notes.end());
    TorchTimes torch;
    if (!python.empty()) {
        DS_ASSIGN(torch, time_torch(python, device));  // after ours has released its device memory
    }
    return print_report(options, device, done, torch);
}

Result<int> do_kernels(const KernelsArguments& options) {
    if (options.backend == "cuda") return do_on_cuda(options.settings, options);
    if (!options.torch.empty())
        return bad_input("--torch {}: PyTorch is timed only with --backend cuda", options.torch);
    if (options.backend != "cpu")
        return bad_input("--backend {}: unknown; known are cpu, cuda", options.backend);
    DS_ASSIGN(const KernelReport measured, measure_kernels(options.settings));
    return print_report(options, measured);
}

}  // namespace

void add_kernels(CLI::App& program, Action& action) {
    auto options = std::make_shared<KernelsArguments>();
    CLI::App* command = program.add_subcommand(
        "kernels",
        "Time the head, gather, layer and selection kernels at any size, relative to the memory bandwidth");
    command->footer(
        "Example: draftscope kernels --vocab 128256 --hidden 4096 --rows 1,8 --precision int8 --csv");
    add_shown(*command, "--vocab,--v", options->settings.vocab, "rows V of the head (also --v)");
    add_shown(*command, "--hidden,--d", options->settings.hidden, "columns d of the head (also --d)");
    add_list(*command, "--rank", options->settings.ranks,
             "ranks of the low-rank heads, a list (default: d / 8)");
    add_list(*command, "--gather", options->settings.gather,
             "rows of the gathered heads and of the router's shortlists, a list")
        ->capture_default_str();
    add_shown(*command, "--k", options->settings.k, "candidates of the top-k");
    add_list(*command, "--rows,--m", options->settings.rows, "activation rows M per call, a list (also --m)")
        ->capture_default_str();
    add_list(*command, "--precision", options->settings.precisions, "f32, bf16, int8, int4, a list")
        ->capture_default_str();
    add_shown(*command, "--backend", options->backend, "cpu or cuda; cuda computes in bf16");
    command->add_option("--torch", options->torch,
                        "a Python with PyTorch, timed on the same work for comparison (cuda)");
    add_threads_option(*command, options->settings.threads);
    add_shown(*command, "--seconds", options->settings.seconds, "seconds spent on each op");
    auto* json = command->add_flag("--json", options->json, "print one JSON document on stdout");
    command->add_flag("--csv", options->csv, "print comma-separated rows")->excludes(json);
    command->callback([options, &action] { action = [options] { return do_kernels(*options); }; });
}

}  // namespace draftscope::cli
