#include "base/notes.h"

#include <mutex>
#include <set>

#include "base/log.h"

namespace draftscope {

void say_notes(const Notes& notes) {
    static std::mutex mutex;
    static std::set<std::string, std::less<>> said;
    const std::lock_guard lock(mutex);
    for (const std::string& note : notes)
        if (said.insert(note).second) log_warning("{}", note);
}

}  // namespace draftscope
