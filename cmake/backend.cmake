# The backend library: LLVM (ORC JIT).
find_package(LLVM 14 REQUIRED CONFIG)
cad_folder(backend backend backend/cpu backend/comm backend/spmd)
target_include_directories(cad_backend SYSTEM PRIVATE ${LLVM_INCLUDE_DIRS})
target_link_libraries(cad_backend PUBLIC cad_planner PRIVATE LLVM)
target_link_directories(cad_backend PUBLIC ${LLVM_LIBRARY_DIRS})
# Devices on several hosts: optional.
option(COLAUTO_MPI "use MPI when it is there" ON)
if(COLAUTO_MPI)
  find_package(MPI QUIET COMPONENTS C)
endif()
if(MPI_C_FOUND)
  set_source_files_properties(backend/comm/mpi_world.cc backend/comm/mpi_lines.cc backend/comm/mpi_peers.cc
    backend/comm/mpi_session.cc PROPERTIES
    COMPILE_DEFINITIONS "COLAUTO_MPI;OMPI_SKIP_MPICXX"
    COMPILE_OPTIONS "-isystem$<JOIN:${MPI_C_INCLUDE_DIRS},;-isystem>")
  target_link_libraries(cad_backend PUBLIC ${MPI_C_LIBRARIES})
  message(STATUS "MPI: ${MPI_C_LIBRARY_VERSION_STRING}${MPI_C_LIBRARIES}")
else()
  message(STATUS "MPI: not found, devices of one process only")
endif()
