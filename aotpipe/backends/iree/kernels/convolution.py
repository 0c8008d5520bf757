"""The text of a convolution's dispatch: images with the channels last, weights in panels of vectors.

A convolution is one of `[batch, depth, height, width, channels]` by `[panels, kernel * channels, outputs]`,
and a matmul that of an image of one column. Each step of the innermost loop multiplies one number of each
pixel of a tile by vectors of outputs; the sums stay in registers until all channels and places of the kernel
are added. A depthwise one has panels `[panels, kernel, channels]`, by which vectors of pixels are multiplied.
A tile that would go past the end of an image starts earlier and computes some pixels again. Where
an image may be smaller than a tile, it is computed pixel by pixel then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Final, NamedTuple

from aotpipe.backends.iree.kernels.steps import Steps, emitted

_LARGE_BYTES: Final = 1 << 20
"""Weights from here on are read once for all rows of an image, and not once for each few."""
_MOST_OF_UNKNOWN: Final = 8
"""Pixels of a tile where an image may be smaller: fewer have room more often."""
_WORK: Final = 1 << 22
"""Products that a workgroup has at least: it starts in less time than these take."""
_FEWEST: Final = 4
"""Lanes of a vector that is shorter than the registers."""
_MASKED: Final = 2
"""How many times as long reads with a mask take."""
_GROUPS: Final = 32
"""Workgroups that keep the threads of a machine busy."""


NO_STEPS: Final = Steps()


class Registers(NamedTuple):
    """The vector registers of a CPU: the floats that one holds, and how many there are."""

    lanes: int
    number: int


@dataclass(frozen=True, slots=True)
class Convolution:
    """The sizes of a convolution of images that are padded already; None for those that a call decides.

    Attributes:
        size: Batch, depth, height, width and channels of the images.
        outputs: Channels of the result.
        kernel: Depth, height and width of the kernel.
        element: `f32` or `f64`.
    """

    size: tuple[int | None, int, int | None, int | None, int]
    outputs: int
    kernel: tuple[int, int, int]
    stride: tuple[int, int, int]
    dilation: tuple[int, int, int]
    groups: int = 1
    element: str = "f32"

    @property
    def counts(self) -> tuple[int | None, ...]:
        """Depth, height and width of the result."""
        each = zip(self.size[1:4], self.kernel, self.stride, self.dilation, strict=True)
        return tuple(
            None if size is None else (size - spread * (width - 1) - 1) // step + 1
            for size, width, step, spread in each
        )

    @property
    def reduced(self) -> int:
        """How many products each element of the result sums."""
        return prod(self.kernel) * self.size[4] // self.groups

    @property
    def is_depthwise(self) -> bool:
        """Whether each channel is a group: then vectors of pixels are multiplied, and not their numbers."""
        return 1 < self.groups == self.outputs == self.size[4]

    @property
    def parts(self) -> int:
        """Groups of outputs that have panels of their own."""
        return 1 if self.is_depthwise else self.groups


@dataclass(frozen=True, slots=True)
class Tiling:
    """How a convolution is cut.

    Attributes:
        lanes: Floats of a vector.
        vectors: Vectors of outputs of a panel.
        rows: Rows of a tile.
        columns: Columns of a tile.
        rows_of_group: Rows that a workgroup computes, or fewer at the end.
        panels: Panels of each group of the convolution.
    """

    lanes: int
    vectors: int
    rows: int
    columns: int
    rows_of_group: int
    panels: int

    @property
    def width(self) -> int:
        """Outputs of a panel."""
        return self.lanes * self.vectors


def tiling(conv: Convolution, registers: Registers) -> Tiling:
    """The tiles that are computed in the fewest cycles, as far as the registers and caches tell."""
    outputs = conv.outputs // conv.parts
    lanes = registers.lanes if conv.element == "f32" else registers.lanes // 2
    while lanes // 2 >= max(outputs, 2):
        lanes //= 2
    _, height, width = conv.counts
    least = None
    for each, vectors in product(_halves(lanes) if conv.is_depthwise else [lanes], range(1, 5)):
        panels = -(-outputs // (each * vectors))
        # Of a depthwise convolution all reads of a panel that is not full have a mask.
        slower = _MASKED if conv.is_depthwise and outputs % (each * vectors) else 1
        most = (registers.number - 1 - vectors) // vectors
        for rows, columns in _tiles(height, width, most):
            tiles = -(-(height or 1024) // rows) * -(-(width or 1024) // columns)
            # Two products and two reads a cycle; a sum takes four; weights come from the second cache.
            pixels = rows * columns
            reads = vectors * (pixels + 1) if conv.is_depthwise else pixels + vectors
            cycles = 2 + max(pixels * vectors / 2, reads / 2, 4, 1.5 * vectors)
            cost = (panels * tiles * cycles * slower, -vectors)
            if least is None or cost < least[0]:
                least = (cost, Tiling(each, vectors, rows, columns, 0, panels))
    assert least is not None
    chosen = least[1]
    return Tiling(
        chosen.lanes, chosen.vectors, chosen.rows, chosen.columns, _rows_of_group(conv, chosen), chosen.panels
    )


def _halves(lanes: int) -> list[int]:
    """Lengths of vectors, from the longest on."""
    return [each for each in (lanes, lanes // 2, lanes // 4) if each >= min(lanes, _FEWEST)]


def _tiles(height: int | None, width: int | None, most: int) -> Iterator[tuple[int, int]]:
    """Rows and columns of a tile; where one of the sizes is not known, the other is one."""
    for rows in range(1, min(height or most, most) + 1):
        for columns in range(1, min(width or most, most // rows) + 1):
            is_known = None not in (height, width)
            if not is_known and (min(rows, columns) > 1 or rows * columns > _MOST_OF_UNKNOWN):
                continue
            yield rows, columns


def _rows_of_group(conv: Convolution, tiles: Tiling) -> int:
    """As many as give each thread some workgroups, and each workgroup some work; the last has a tile, too."""
    batch, (depth, height, width) = conv.size[0] or 1, conv.counts
    if height is None:
        return 8 * tiles.rows
    others = conv.parts * tiles.panels * batch * (depth or 1)
    work = conv.reduced * tiles.width * (width or 1)
    wanted = max(1, height * others // _GROUPS, -(-_WORK // work))
    for rows in range(max(wanted, tiles.rows), height):
        if height % rows == 0 or height % rows >= tiles.rows:
            return rows
    return height


def text(conv: Convolution, tiles: Tiling, name: str, after: Steps = NO_STEPS) -> str:
    """The executable `@name`, and a function that calls it.

    The function is given images, panels, what the steps after the sums have for each output, in panels
    `[panels, outputs]`, and what they have for each number of the result.
    """
    return _Text(conv, tiles, name, after).module()


class _Text:
    """Writes the module of one kernel. A size that a call decides is an operand of the dispatch."""

    def __init__(self, conv: Convolution, tiles: Tiling, name: str, after: Steps) -> None:
        self.conv, self.tiles, self.name, self.after = conv, tiles, name, after
        self.more = [f"c{place}" for place in range(after.channels)]
        self.more += [f"i{place}" for place in range(after.images)]
        batch, _, height, width, _ = conv.size
        self.sizes = {"batch": batch, "height": height, "width": width}
        self.decided = [key for key, size in self.sizes.items() if size is None]
        self.depths, self.heights, self.widths = conv.counts
        outputs = conv.outputs // conv.parts
        self.is_full = outputs % tiles.width == 0
        self.panels = (conv.parts * tiles.panels, conv.reduced, tiles.width)

    def module(self) -> str:
        """The text of the module."""
        conv, tiles = self.conv, self.tiles
        made = (conv.size[0], self.depths, self.heights, self.widths, conv.outputs)
        given = ", ".join(f"%{key}: index" for key in self.decided)
        arguments = "".join(f", %{key}_in: {self._kind_of(key)}" for key in self.more)
        arguments += "".join(f", %{key}_in: index" for key in self.decided)
        parameters = "".join(f", %{key}: {self._type_of(key)}" for key in self.more)
        ordinals = _lines(
            f"%{key} = iree_tensor_ext.dispatch.workload.ordinal %{key}_in, {place} : index"
            for place, key in enumerate(self.decided)
        )
        of_images, of_results = self._dims()
        if self.decided:
            images = [f"i{place}" for place in range(self.after.images)]
            ties = _lines(
                [
                    f"%x_tied = flow.dispatch.tie_shape %x_in : !reads{of_images}",
                    f"%out_tied = flow.dispatch.tie_shape %out_in : !writes{of_results}",
                    *(
                        f"%{key}_tied = flow.dispatch.tie_shape %{key}_in : !reads_out{of_results}"
                        for key in images
                    ),
                ]
            )
            x_in, out_in = "%x_tied", "%out_tied"
        else:
            ties, x_in, out_in = "", "%x_in", "%out_in"
        first_count, second_count = self._in_order("%panels", "%groups")
        whole = [
            f"%{('batch', '', 'height', 'width')[dim]}" if size is None else size
            for dim, size in enumerate(conv.size)
        ]
        return f"""
!x = {self._tensor(conv.size)}
!w = {self._tensor(self.panels)}
!out = {self._tensor(made)}
!tile = {self._tensor((None, self.widths, tiles.width if self.is_full else None))}
!numbers = {self._tensor((self.panels[0], tiles.width))}
!vector = vector<{tiles.lanes}x{conv.element}>
!reads = !iree_tensor_ext.dispatch.tensor<readonly:!x>
!reads_panels = !iree_tensor_ext.dispatch.tensor<readonly:!w>
!reads_numbers = !iree_tensor_ext.dispatch.tensor<readonly:!numbers>
!reads_out = !iree_tensor_ext.dispatch.tensor<readonly:!out>
!writes = !iree_tensor_ext.dispatch.tensor<writeonly:!out>
flow.executable private @{self.name} {{
  flow.executable.export public @{self.name} workgroups({given}) -> (index, index, index) {{
    %one = arith.constant 1 : index
    %panels = arith.constant {self.panels[0]} : index
    {self._known()}
    {self._counts()}
    %of_group = arith.constant {tiles.rows_of_group} : index
    %groups = arith.ceildivsi %heights, %of_group : index
    %depths = arith.constant {self.depths} : index
    %images = arith.muli %batch, %depths : index
    %others = arith.muli %images, {second_count} : index
    flow.return {first_count}, %others, %one : index, index, index
  }}
  builtin.module {{
    func.func @{self.name}(%x_in: !reads, %w_in: !reads_panels{arguments}, %out_in: !writes) {{
      {ordinals}
      {self._known()}
      {self._counts()}
      {ties}
      {self._constants()}
      %x = iree_tensor_ext.dispatch.tensor.load {x_in}, offsets = [0, 0, 0, 0, 0], sizes = {_list(whole)},
          strides = [1, 1, 1, 1, 1] : !reads{of_images} -> !x
      %w = iree_tensor_ext.dispatch.tensor.load %w_in, offsets = [0, 0, 0], sizes = {_list(self.panels)},
          strides = [1, 1, 1] : !reads_panels -> !w
      {self._loads(of_results)}
      {self._place()}
      %empty = tensor.empty({self._tile_sizes()}) : !tile
      {self._tiles_or_pixels()}
      iree_tensor_ext.dispatch.tensor.store %made, {out_in}, offsets = [%image, %layer, %first, 0, %output],
          sizes = [1, 1, %rows, {self.widths or "%widths"}, {tiles.width if self.is_full else "%outputs"}],
          strides = [1, 1, 1, 1, 1] : !tile -> !writes{of_results}
      return
    }}
  }}
}}
util.func private @call(%x: !x, %w: !w{parameters}) -> !out {{
  {self._call()}
  util.return %found : !out
}}
"""

    def _tensor(self, shape: Sequence[int | None]) -> str:
        sizes = "".join("?x" if size is None else f"{size}x" for size in shape)
        return f"tensor<{sizes}{self.conv.element}>"

    def _dims(self) -> tuple[str, str]:
        """The sizes of images and of results that a call decides, as types of operands name them."""
        given = [f"%{key}" for key in self.decided]
        made = [name if name == "%batch" else f"{name}s" for name in given]
        return (f"{{{', '.join(given)}}}", f"{{{', '.join(made)}}}") if given else ("", "")

    def _call(self) -> str:
        """The dispatch of the images, with the sizes that the call decides."""
        at = {"batch": 0, "height": 2, "width": 3}
        found = _lines(
            f"%at_{key} = arith.constant {at[key]} : index\n%{key} = tensor.dim %x, %at_{key} : !x"
            for key in self.decided
        )
        names = [f"%{key}" for key in self.decided]
        workload = _list(names) if names else ""
        of_images, of_results = self._dims()
        more = [f"%{key}" for key in self.more]
        types = [f", {self._type_of(key)}{of_results if key.startswith('i') else ''}" for key in self.more]
        return f"""{found}
  {self._counts() if names else ""}
  %found = flow.dispatch @{self.name}::@{self.name}{workload}({", ".join(["%x", "%w", *more, *names])})
      : (!x{of_images}, !w{"".join(types)}{", index" * len(names)}) -> !out{of_results}"""

    def _type_of(self, key: str) -> str:
        return "!numbers" if key.startswith("c") else "!out"

    def _kind_of(self, key: str) -> str:
        return "!reads_numbers" if key.startswith("c") else "!reads_out"

    def _loads(self, dims: str) -> str:
        """What the steps after the sums read."""
        sizes = [self.conv.size[0], self.depths, self.heights, self.widths]
        names = ["%batch", "", "%heights", "%widths"]
        whole: list[object] = [
            name if size is None else size for name, size in zip(names, sizes, strict=True)
        ]
        whole.append(self.conv.outputs)
        tied = "tied" if self.decided else "in"
        lines = [
            f"%c{place} = iree_tensor_ext.dispatch.tensor.load %c{place}_in, offsets = [0, 0], "
            f"sizes = [{self.panels[0]}, {self.tiles.width}], strides = [1, 1] : !reads_numbers -> !numbers"
            for place in range(self.after.channels)
        ]
        lines += [
            f"%i{place} = iree_tensor_ext.dispatch.tensor.load %i{place}_{tied}, offsets = [0, 0, 0, 0, 0], "
            f"sizes = {_list(whole)}, strides = [1, 1, 1, 1, 1] : !reads_out{dims} -> !out"
            for place in range(self.after.images)
        ]
        return _lines(lines)

    def _known(self) -> str:
        return _lines(
            f"%{key} = arith.constant {size} : index" for key, size in self.sizes.items() if size is not None
        )

    def _counts(self) -> str:
        """Rows and columns of the result."""
        lines = []
        for dim, key, count in ((1, "height", self.heights), (2, "width", self.widths)):
            if count is not None:
                lines.append(f"%{key}s = arith.constant {count} : index")
                continue
            reach = self.conv.dilation[dim] * (self.conv.kernel[dim] - 1) + 1
            lines += [
                f"%{key}_reach = arith.constant {reach} : index",
                f"%{key}_step = arith.constant {self.conv.stride[dim]} : index",
                f"%{key}_one = arith.constant 1 : index",
                f"%{key}_left = arith.subi %{key}, %{key}_reach : index",
                f"%{key}_more = arith.divsi %{key}_left, %{key}_step : index",
                f"%{key}s = arith.addi %{key}_more, %{key}_one : index",
            ]
        return _lines(lines)

    def _in_order(self, panels: str, groups: str) -> tuple[str, str]:
        """What differs from one workgroup to the next, and what changes after that."""
        is_large = 4 * self.conv.outputs * self.conv.reduced >= _LARGE_BYTES
        return (groups, panels) if is_large else (panels, groups)

    def _constants(self) -> str:
        conv, tiles = self.conv, self.tiles
        channels = conv.size[4] // conv.groups
        kernel_d, kernel_h, kernel_w = conv.kernel
        numbers = {
            "none": 0,
            "one": 1,
            "depths": self.depths,
            "of_group": tiles.rows_of_group,
            "panels": tiles.panels,
            "panel_width": tiles.width,
            "group_outputs": conv.outputs // conv.parts,
            "channels": channels,
            "taps_d": kernel_h * kernel_w * channels,
            "taps_h": kernel_w * channels,
            "kernel_d": kernel_d,
            "kernel_h": kernel_h,
            "kernel_w": kernel_w,
            **{f"step_{dim}": step for dim, step in zip("dhw", conv.stride, strict=True)},
            **{f"spread_{dim}": spread for dim, spread in zip("dhw", conv.dilation, strict=True)},
        }
        # What is added to the first row, column and output of a tile.
        most = max(tiles.rows * conv.stride[1], tiles.columns * conv.stride[2], tiles.width)
        numbers |= {f"n{number}": number for number in range(most + 1)}
        lines = [f"%{key} = arith.constant {number} : index" for key, number in numbers.items()]
        lines.append(f"%zero = arith.constant 0.0 : {conv.element}")
        return _lines([*lines, "%zeros = arith.constant dense<0.0> : !vector"])

    def _place(self) -> str:
        """What a workgroup computes: some rows of a layer of an image, and the outputs of a panel."""
        first, second = self._in_order("%panel", "%group")
        _, count = self._in_order("%all_panels", "%all_groups")
        # The third of a workgroup's numbers has 16 bits: fewer than images may be.
        return f"""{first} = flow.dispatch.workgroup.id[0] : index
      %other = flow.dispatch.workgroup.id[1] : index
      %all_panels = arith.constant {self.panels[0]} : index
      %all_groups = arith.ceildivsi %heights, %of_group : index
      {second} = arith.remui %other, {count} : index
      %nth = arith.divui %other, {count} : index
      %image = arith.divui %nth, %depths : index
      %layer = arith.remui %nth, %depths : index
      %first = arith.muli %group, %of_group : index
      %left = arith.subi %heights, %first : index
      %rows = arith.minsi %left, %of_group : index
      %of_groups = arith.divui %panel, %panels : index
      %panel_of_group = arith.remui %panel, %panels : index
      %output_first = arith.muli %of_groups, %group_outputs : index
      %output_in = arith.muli %panel_of_group, %panel_width : index
      %output = arith.addi %output_first, %output_in : index
      %outputs_left = arith.subi %group_outputs, %output_in : index
      %outputs = arith.minsi %outputs_left, %panel_width : index
      %channel = arith.muli %of_groups, %channels : index
      %origin_d = arith.muli %layer, %step_d : index"""

    def _tile_sizes(self) -> str:
        sizes = ["%rows"]
        sizes += ["%widths"] if self.widths is None else []
        return ", ".join(sizes + ([] if self.is_full else ["%outputs"]))

    def _tiles_or_pixels(self) -> str:
        """The loops over tiles; over single pixels where a tile has no room."""
        tiles = self.tiles
        if self.heights is None and tiles.rows > 1:
            size, least = "%rows", tiles.rows
        elif self.widths is None and tiles.columns > 1:
            size, least = "%widths", tiles.columns
        else:
            return self._over_tiles("%made", tiles.rows, tiles.columns)
        return f"""%has_room = arith.cmpi sge, {size}, %n{least} : index
      %made = scf.if %has_room -> (!tile) {{
        {self._over_tiles("%whole", tiles.rows, tiles.columns)}
        scf.yield %whole : !tile
      }} else {{
        {self._over_tiles("%single", 1, 1)}
        scf.yield %single : !tile
      }}"""

    def _over_tiles(self, made: str, rows: int, columns: int) -> str:
        """The loops over the tiles of a workgroup; the last of a dim ends where the image does."""
        return f"""%last_row = arith.subi %rows, %n{rows} : index
      %last_column = arith.subi %widths, %n{columns} : index
      {made} = scf.for %row_next = %none to %rows step %n{rows} iter_args(%rows_in = %empty) -> (!tile) {{
        %row = arith.minsi %row_next, %last_row : index
        %row_all = arith.addi %first, %row : index
        %origin_h = arith.muli %row_all, %step_h : index
        %row_made = scf.for %column_next = %none to %widths step %n{columns}
            iter_args(%tile_in = %rows_in) -> (!tile) {{
          %column = arith.minsi %column_next, %last_column : index
          %origin_w = arith.muli %column, %step_w : index
          {self._sums(rows, columns)}
          {self._writes(rows, columns)}
          scf.yield %tile_out : !tile
        }}
        scf.yield %row_made : !tile
      }}"""

    def _sums(self, rows: int, columns: int) -> str:
        """The loops over the kernel and the channels; `%sums_d` has the vectors of each pixel."""
        step_h, step_w = self.conv.stride[1:]
        count = rows * columns * self.tiles.vectors
        body = _lines(
            [
                "%place = arith.addi %before_w, %c : index",
                "%at = arith.addi %channel, %c : index",
                *self._products(rows, columns),
            ]
        )
        body = _loop("c", "%channels", "w", count, body, [f"%added{place}" for place in range(count)])
        moved_h = [f"%row{row} = arith.addi %at_h, %n{row * step_h} : index" for row in range(rows)]
        moved_w = [f"%column{each} = arith.addi %at_w, %n{each * step_w} : index" for each in range(columns)]
        for dim, inner, before, taps, moved in (
            ("w", "c", "%before_h", "%channels", moved_w),
            ("h", "w", "%before_d", "%taps_h", moved_h),
            ("d", "h", "%none", "%taps_d", []),
        ):
            lines = [
                f"%apart_{dim} = arith.muli %k{dim}, %spread_{dim} : index",
                f"%at_{dim} = arith.addi %origin_{dim}, %apart_{dim} : index",
                f"%own_{dim} = arith.muli %k{dim}, {taps} : index",
                f"%before_{dim} = arith.addi {before}, %own_{dim} : index",
                *moved,
                body,
            ]
            outer = {"w": "h", "h": "d", "d": ""}[dim]
            yields = [f"%sums_{inner}#{place}" for place in range(count)]
            body = _loop(dim, f"%kernel_{dim}", outer, count, _lines(lines), yields)
        return body

    def _products(self, rows: int, columns: int) -> Iterator[str]:
        """Each pixel's number of one channel, or its vector of them, times the weights of a panel."""
        tiles = self.tiles
        for vector in range(tiles.vectors):
            yield (
                f"%weight{vector} = vector.transfer_read %w[%panel, %place, %n{vector * tiles.lanes}], %zero "
                "{in_bounds = [true]} : !w, !vector"
            )
            if self.conv.is_depthwise:
                yield f"%channel{vector} = arith.addi %output_in, %n{vector * tiles.lanes} : index"
        for pixel in range(rows * columns):
            row, column = divmod(pixel, columns)
            where = f"%image, %at_d, %row{row}, %column{column}"
            if not self.conv.is_depthwise:
                yield f"%x{pixel} = tensor.extract %x[{where}, %at] : !x"
                yield f"%pixel{pixel} = vector.broadcast %x{pixel} : {self.conv.element} to !vector"
            for vector in range(tiles.vectors):
                place, factor = pixel * tiles.vectors + vector, f"%pixel{pixel}"
                if self.conv.is_depthwise:
                    factor, bounds = f"%x{place}", "true" if self.is_full else "false"
                    options = f"%zero {{in_bounds = [{bounds}]}} : !x, !vector"
                    yield f"{factor} = vector.transfer_read %x[{where}, %channel{vector}], {options}"
                factors, terms = f"{factor}, %weight{vector}", f"%product{place}, %sum_c{place}"
                # A CPU without a fused multiply-add would call a function for each number of `math.fma`.
                yield f"%product{place} = arith.mulf {factors} fastmath<contract> : !vector"
                yield f"%added{place} = arith.addf {terms} fastmath<contract> : !vector"

    def _writes(self, rows: int, columns: int) -> str:
        """The sums are put into the workgroup's part of the result, `%tile_out`."""
        tiles = self.tiles
        bounds = "true" if self.is_full else "false"
        lines, last, count = [], "%tile_in", rows * columns * tiles.vectors
        for place in range(count):
            pixel, vector = divmod(place, tiles.vectors)
            row, column = divmod(pixel, columns)
            into = "%tile_out" if place == count - 1 else f"%put{place}"
            at = f"%row_of{place}, %column_of{place}, %n{vector * tiles.lanes}"
            options = f"{{in_bounds = [{bounds}]}} : !vector, !tile"
            lines += [
                f"%row_of{place} = arith.addi %row, %n{row} : index",
                f"%column_of{place} = arith.addi %column, %n{column} : index",
            ]
            steps, value = self._steps(place, vector)
            lines += [*steps, f"{into} = vector.transfer_write {value}, {last}[{at}] {options}"]
            last = into
        return _lines(lines)

    def _steps(self, place: int, vector: int) -> tuple[list[str], str]:
        """The steps after the sums on one vector, and what they give."""
        own, at = f"s{place}_", f"%n{vector * self.tiles.lanes}"
        names = {"v0": f"%sums_d#{place}", **{key: f"%{own}{key}" for key in self.more}}
        lines = [
            f"%{own}c{number} = vector.transfer_read %c{number}[%panel, {at}], %zero {{in_bounds = [true]}} "
            ": !numbers, !vector"
            for number in range(self.after.channels)
        ]
        if self.after.images:
            lines += [
                f"%{own}row = arith.addi %first, %row_of{place} : index",
                f"%{own}output = arith.addi %output, {at} : index",
            ]
        at = f"%image, %layer, %{own}row, %column_of{place}, %{own}output"
        bounds = f"{{in_bounds = [{'true' if self.is_full else 'false'}]}}"
        lines += [
            f"%{own}i{number} = vector.transfer_read %i{number}[{at}], %zero {bounds} : !out, !vector"
            for number in range(self.after.images)
        ]
        kind = f"vector<{self.tiles.lanes}x{self.conv.element}>"
        steps, value = emitted(self.after, names, kind, self.conv.element, own)
        return [*lines, *steps], value


def _loop(dim: str, bound: str, outer: str, count: int, body: str, yields: Sequence[str]) -> str:
    """A loop that carries `count` vectors: `%sums_<dim>`, from those of the loop around it."""
    index = "%c" if dim == "c" else f"%k{dim}"
    begun = [f"%sum_{outer}{place}" if outer else "%zeros" for place in range(count)]
    carried = ", ".join(f"%sum_{dim}{place} = {value}" for place, value in enumerate(begun))
    types = ", ".join(["!vector"] * count)
    return f"""%sums_{dim}:{count} = scf.for {index} = %none to {bound} step %one
              iter_args({carried}) -> ({types}) {{
            {body}
            scf.yield {", ".join(yields)} : {types}
          }}"""


def _lines(lines: Iterable[str]) -> str:
    return "\n".join(lines)


def _list(sizes: Iterable[object]) -> str:
    return f"[{', '.join(map(str, sizes))}]"
