// Replaces CUPTI in builds without its headers: the same interface, always unavailable.
#include "profiler/cupti/cupti_api.h"

namespace draftscope {

namespace {

class NoCupti final : public CuptiApi {
  public:
    CuptiProbe probe() override {
        CuptiProbe out;
        out.state = CuptiState::not_built;
        out.text = "this build has no CUPTI";
        out.remedy = "install the CUDA Toolkit and build again for tiers T1 and T2";
        return out;
    }
    CuptiProbe subscribe(CuptiListener&) override { return probe(); }
    void unsubscribe() override {}
    int enable(CuptiActivity) override { return -1; }
    int flush(bool) override { return -1; }
    std::uint64_t take_dropped() override { return 0; }
    void read(std::uint8_t*, std::size_t, FunctionRef<void(const GpuActivity&)>) override {}
    std::string message(int) override { return "no CUPTI"; }
};

}  // namespace

std::unique_ptr<CuptiApi> make_cupti_api(const std::string&) {
    return std::make_unique<NoCupti>();
}

}  // namespace draftscope
