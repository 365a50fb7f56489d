# The planner library: lp_solve (its static library needs colamd) and zlib for packed problem files.
find_package(ZLIB REQUIRED)
find_path(LPSOLVE_INCLUDE lpsolve/lp_lib.h REQUIRED)
find_library(LPSOLVE_LIBRARY NAMES liblpsolve55_pic.a lpsolve55_pic liblpsolve55.a lpsolve55
             PATH_SUFFIXES lp_solve REQUIRED)
find_library(COLAMD_LIBRARY colamd)
cad_folder(planner planner planner/solver)
target_include_directories(cad_planner SYSTEM PRIVATE ${LPSOLVE_INCLUDE})
target_link_libraries(cad_planner PUBLIC cad_frontend
                      PRIVATE ${LPSOLVE_LIBRARY} $<$<BOOL:${COLAMD_LIBRARY}>:${COLAMD_LIBRARY}> ${CMAKE_DL_LIBS} ZLIB::ZLIB)
