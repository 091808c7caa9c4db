"""Command lines of `run` for kernels with surfaces, used in the simulator and on a GPU."""

from __future__ import annotations

from pathlib import Path

SOURCE = Path(__file__).with_name("data") / "surfaces.cu"
PLANE = ("-g", "cdiv(w,16),cdiv(h,8)", "-b", "16,8", "--arg", "w=70", "--arg", "h=50")
NUMBERED = "np.arange(w*h).astype(np.float32)"


def line(kernel: str, *arguments: str, launch: tuple[str, ...] = PLANE, expect: str) -> tuple[str, ...]:
    """Return the words after `run FILE` that launch one kernel; `launch` ends with its scalar arguments."""
    given = [word for one in arguments for word in ("--arg", one)]
    return ("-k", kernel, *given, *launch, "--expect", expect)


def row(grid: str, width: int) -> tuple[str, ...]:
    """Return the launch of a one-dimensional kernel and its width."""
    return ("-g", grid, "-b", "64", "--arg", f"w={width}")


# Each case with the arrays that its kernel writes. `line` works in place; the array of `fill` starts empty.
CASES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "line": (line("line", "s=surface(float32[w]:random)", launch=row("cdiv(w,64)", 1000), expect="s=2*s0+1"), ("s",)),
    "half": (line("halves", "s=surface(float16[w]:random)", launch=row("cdiv(w,64)", 777), expect="s=2*s0"), ("s",)),
    "fill": (line("fill", "s=surface(float32[h,w]:empty)", expect="s=w*np.arange(h)[:,None]+np.arange(w)"), ("s",)),
    "colours": (
        line(
            "invert", "img=surface(uint8[h,w,4]:random, channels=4)",
            expect="img=np.where(np.arange(4)<3,255-img0,img0)",
        ),
        ("img",),
    ),
    "channel": (
        line(
            "channel", "s=surface(float32[h,w,4]:random, channels=4)", expect="s=s0*np.where(np.arange(4)==1,2,1)",
        ),
        ("s",),
    ),
    "edges": (
        line(
            "edges", "s=surface(int32[h,w]:random)", "o=surface(int32[h,w]:zeros)",
            expect="o=s+3*s[:,np.maximum(np.arange(w)-1,0)]"
            "+1000*np.where(np.arange(h)[:,None]>0,s[np.maximum(np.arange(h)-1,0)],0)",
        ),
        ("o", "s"),
    ),
    "volume": (
        line(
            "volume", "v=surface(int16[6,h,w]:random)",
            launch=("-g", "cdiv(w,16),cdiv(h,8),6", *PLANE[2:]), expect="v=v0+np.arange(6)[:,None,None]",
        ),
        ("v",),
    ),
    "layers": (
        line(
            "sheets", "l=surface(float32[3,h,w,4]:random, channels=4, layers=yes)",
            expect="l[2]=l0[0][:,:,::-1]+np.where(np.arange(4)<3,0,1)",
        ),
        ("l",),
    ),
    "lines": (
        line(
            "lines", "l=surface(uint32[6,w,2]:random, channels=2, layers=yes)",
            launch=row("cdiv(w,64),3", 300), expect="l[3:]=l0[:3]",
        ),
        ("l",),
    ),
    "texture": (
        line("blended", "t=texture(float32[h,w]:integers(0,99), filter=linear)", "o=surface(float32[h,w]:empty)",
             expect="o=(t+t[:,np.minimum(np.arange(w)+1,w-1)])/2"),
        ("o",),
    ),
    # The first step writes a surface, the second reads the same array as a texture.
    "steps": (
        (
            "--step", "fill<<<(cdiv(w,16),cdiv(h,8)),(16,8)>>>(s,w,h)",
            "--step", "shifted<<<(cdiv(w,16),cdiv(h,8)),(16,8)>>>(t,o,w,h)",
            "--arg", "s=surface(float32[h,w]:zeros)", "--arg", "t=texture(s)", "--arg", "o=float32[h,w]:empty",
            "--arg", "w=70", "--arg", "h=50", "--expect", "s=w*np.arange(h)[:,None]+np.arange(w)",
            "--expect", "o=w*np.arange(h)[:,None]+np.minimum(np.arange(w)+1,w-1)",
        ),
        ("s", "o"),
    ),
    # Four steps with swap: after an even number, the result is in the first array again.
    "swapped": (
        (
            "--step", "blur<<<(cdiv(w,16),cdiv(h,8)),(16,8)>>>(a,b,w,h) * 4 swap(a,b)",
            "--arg", "a=surface(float32[h,w]:ones)", "--arg", "b=surface(float32[h,w]:zeros)",
            "--arg", "w=70", "--arg", "h=50", "--expect", "a=1", "--expect", "b=1",
        ),
        ("a", "b"),
    ),
}  # fmt: skip
WRONG = line("line", "s=surface(float32[w]:random)", launch=row("cdiv(w,64)", 1000), expect="s=2*s0")
BEYOND = line("beyond", "s=surface(float32[200]:zeros)", launch=("-g", "1", "-b", "256"), expect="s=1")
