# builds the four programs at once
cd "$(dirname "$0")"
for w in ${@:-HALF TF SPLIT SIMT}; do
  nvcc -std=c++17 -gencode arch=compute_90a,code=sm_90a -O3 -split-compile=8 -Xptxas -v -D$w -o ${OUT:-/tmp}/bench_$w bench.cu -ldl > ${OUT:-/tmp}/build_$w.txt 2>&1 &
done
wait
