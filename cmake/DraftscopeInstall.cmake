# `cmake --install build/release --prefix DIR`, and `cpack -G DEB` in the build folder.
include(GNUInstallDirs)
set(ds_share ${CMAKE_INSTALL_DATADIR}/draftscope)
set(ds_packaging ${PROJECT_SOURCE_DIR}/cmake/packaging)

install(TARGETS draftscope RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
if(TARGET draftscope_nvtx)
    install(TARGETS draftscope_nvtx LIBRARY DESTINATION lib/draftscope)
endif()
# The program finds its assets relative to itself, and the tools next to them.
install(DIRECTORY ${PROJECT_SOURCE_DIR}/assets DESTINATION ${ds_share})
install(PROGRAMS ${PROJECT_SOURCE_DIR}/tools/fetch_deps.sh ${PROJECT_SOURCE_DIR}/tools/with_torch.sh
    ${PROJECT_SOURCE_DIR}/tools/train_drafter.py DESTINATION ${ds_share}/tools)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/tools/drafter_training DESTINATION ${ds_share}/tools FILES_MATCHING PATTERN *.py)
install(FILES README.md CHANGELOG.md LICENSE THIRD_PARTY.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs/ DESTINATION ${CMAKE_INSTALL_DOCDIR}/docs PATTERN decisions EXCLUDE PATTERN data EXCLUDE)
if(DRAFTSCOPE_GUI)
    install(FILES ${ds_packaging}/draftscope.desktop DESTINATION ${CMAKE_INSTALL_DATADIR}/applications)
    install(FILES ${ds_packaging}/draftscope.svg DESTINATION ${CMAKE_INSTALL_DATADIR}/icons/hicolor/scalable/apps)
    install(FILES ${ds_packaging}/draftscope.xml DESTINATION ${CMAKE_INSTALL_DATADIR}/mime/packages)
    install(FILES ${ds_packaging}/draftscope.metainfo.xml DESTINATION ${CMAKE_INSTALL_DATADIR}/metainfo)
endif()
# Made of the program's own --help, so that they have every command and option.
install(CODE "execute_process(COMMAND ${ds_packaging}/make_man.py ${CMAKE_BINARY_DIR}/draftscope ${CMAKE_BINARY_DIR}/generated/man
    COMMAND_ERROR_IS_FATAL ANY)")
install(DIRECTORY ${CMAKE_BINARY_DIR}/generated/man/man1 DESTINATION ${CMAKE_INSTALL_MANDIR})
install(FILES ${CMAKE_BINARY_DIR}/generated/man/draftscope.bash RENAME draftscope
    DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME draftscope)
set(CPACK_PACKAGE_CONTACT "Draftscope maintainers <draftscope@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Profiler and debugger for speculative decoding of language models")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION devel)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
# The first start fetches the demo model with pip.
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "python3, python3-pip, libgl1-mesa-dri")
include(CPack)
