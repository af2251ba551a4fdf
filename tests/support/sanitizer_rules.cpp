/// Rules of sanitizer builds for code that is not ours: drivers of OpenGL, which a window loads at run time.
/// Every program of such a build contains them.

extern "C" {

/// Keeps modules loaded, because a leak's stack cannot name a module that was closed.
int dlclose(void* /*module*/) {
    return 0;
}

const char* __lsan_default_suppressions() {
    return "leak:_dri.so\nleak:libGLX\n";
}

const char* __tsan_default_suppressions() {
    return "race:_dri.so\n";
}

}  // extern "C"
