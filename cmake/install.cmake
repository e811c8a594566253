# What `cmake --install` lays down: both libraries, the public headers, the CMake package (find_package(tandem), targets
# tandem::tandem and tandem::tandem_static), the pkg-config file and the licence. Paths in the files are relative, so an
# installed tree can be moved. Included at the end of src/CMakeLists.txt.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

option(TANDEM_INSTALL "Add rules that install Tandem" ${PROJECT_IS_TOP_LEVEL})
if(NOT TANDEM_INSTALL)
  return()
endif()

set(tandem_package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/tandem)
set_target_properties(tandem_shared PROPERTIES EXPORT_NAME tandem)
set_target_properties(tandem_static PROPERTIES EXPORT_NAME tandem_static)
install(TARGETS tandem_shared tandem_static EXPORT tandem_targets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
        INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/tandem DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")
install(EXPORT tandem_targets NAMESPACE tandem:: FILE tandemTargets.cmake DESTINATION ${tandem_package_folder})

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/tandemConfig.cmake.in ${PROJECT_BINARY_DIR}/tandemConfig.cmake
                              INSTALL_DESTINATION ${tandem_package_folder})
# Before 1.0 a minor release may break: only the same minor version is compatible.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/tandemConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/tandemConfig.cmake ${PROJECT_BINARY_DIR}/tandemConfigVersion.cmake
        DESTINATION ${tandem_package_folder})

file(RELATIVE_PATH tandem_prefix_from_pc /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" tandem_prefix_from_pc "${tandem_prefix_from_pc}")
configure_file(${PROJECT_SOURCE_DIR}/cmake/tandem.pc.in ${PROJECT_BINARY_DIR}/tandem.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/tandem.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
