"""What tenon.nn is made of: parameters and modules."""

from __future__ import annotations

from typing import Any, Dict, Iterator, Optional, Tuple

from tenon import _core
from tenon._tensor import Tensor


class Parameter(Tensor):
    """A tensor that a module trains: assigned to an attribute, it is one of its parameters."""

    def __init__(self, data: Tensor, requires_grad: bool = True) -> None:
        super().__init__(data)
        self.requires_grad = requires_grad


class Module:
    """A layer or a whole model. Derived classes make what they hold in __init__."""

    training: bool

    def __init__(self) -> None:
        object.__setattr__(self, "_parameters", {})
        object.__setattr__(self, "_buffers", {})
        object.__setattr__(self, "_modules", {})
        object.__setattr__(self, "training", True)
        object.__setattr__(self, "_path", "")

    def forward(self, *inputs: Any) -> Any:
        """Computes the result; calling the module calls it."""
        raise NotImplementedError(f"{type(self).__name__}.forward: override it")

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        if not self._path:
            return self.forward(*inputs, **named)
        with _core.Tag("", self._path):
            return self.forward(*inputs, **named)

    # --- What it holds.

    _parameters: Dict[str, Optional[Tensor]]
    _buffers: Dict[str, Tensor]
    _modules: Dict[str, Module]
    _path: str

    def __setattr__(self, name: str, value: Any) -> None:
        if "_parameters" not in self.__dict__:
            raise AttributeError(f"{name}: call super().__init__() before it is set")
        homes: Tuple[Dict[str, Any], ...] = (self._parameters, self._buffers, self._modules)
        if isinstance(value, Parameter):
            home: Optional[Dict[str, Any]] = self._parameters
        elif isinstance(value, Module):
            home = self._modules
        elif name in self._buffers and isinstance(value, Tensor):
            home = self._buffers
        elif name in self._parameters and value is None:
            home = self._parameters
        elif name in self._parameters:
            raise TypeError(f"{name} is a parameter: give a tenon.nn.Parameter or None, not "
                            f"{type(value).__name__}")
        else:
            home = None
        for other in homes:
            if other is not home:
                other.pop(name, None)
        if home is None:
            object.__setattr__(self, name, value)
        else:
            self.__dict__.pop(name, None)
            home[name] = value

    def __getattr__(self, name: str) -> Any:
        for home in ("_parameters", "_buffers", "_modules"):
            held = self.__dict__.get(home, {})
            if name in held:
                return held[name]
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def __delattr__(self, name: str) -> None:
        for home in (self._parameters, self._buffers, self._modules):
            if name in home:
                del home[name]
                return
        object.__delattr__(self, name)

    def register_parameter(self, name: str, parameter: Optional[Parameter]) -> None:
        """Holds a parameter by a name."""
        self._check_name(name)
        self._parameters[name] = parameter

    def register_buffer(self, name: str, tensor: Tensor) -> None:
        """Holds a tensor that is part of the state and not trained."""
        self._check_name(name)
        self._buffers[name] = tensor

    def add_module(self, name: str, module: Module) -> None:
        """Holds a module by a name."""
        self._check_name(name)
        self._modules[name] = module

    def _check_name(self, name: str) -> None:
        if not name or "." in name:
            raise ValueError(f"name {name!r}: give one that is not empty and has no dot")
        if name in self._parameters or name in self._buffers or name in self._modules:
            raise ValueError(f"name {name!r} is taken")

    # --- Lists of it. Modules inside come first, as in C++.

    def named_modules(self, prefix: str = "") -> Iterator[Tuple[str, Module]]:
        """This module and those inside, with their paths."""
        yield prefix, self
        for name, module in self._modules.items():
            yield from module.named_modules(f"{prefix}.{name}" if prefix else name)

    def modules(self) -> Iterator[Module]:
        """This module and those inside."""
        return (module for _, module in self.named_modules())

    def children(self) -> Iterator[Module]:
        """The modules right inside."""
        return iter(self._modules.values())

    def _named(self, home: str, prefix: str) -> Iterator[Tuple[str, Tensor]]:
        for name, module in self._modules.items():
            yield from module._named(home, f"{prefix}{name}.")
        for name, tensor in getattr(self, home).items():
            if tensor is not None:
                yield prefix + name, tensor

    def named_parameters(self) -> Iterator[Tuple[str, Tensor]]:
        """Parameters with their names; one that two modules share comes once."""
        seen = set()
        for name, tensor in self._named("_parameters", ""):
            if id(tensor) not in seen:
                seen.add(id(tensor))
                yield name, tensor

    def parameters(self) -> Iterator[Tensor]:
        """Parameters of this module and those inside."""
        return (tensor for _, tensor in self.named_parameters())

    def named_buffers(self) -> Iterator[Tuple[str, Tensor]]:
        """Buffers with their names."""
        return self._named("_buffers", "")

    def state_dict(self) -> Dict[str, Tensor]:
        """Parameters and buffers by name, detached; they share memory with the module."""
        state = dict(self._named("_parameters", ""))
        state.update(self.named_buffers())
        return {name: tensor.detach() for name, tensor in state.items()}

    def load_state_dict(self, state: Dict[str, Tensor], strict: bool = True) -> None:
        """Copies values in. Where names or shapes differ: ValueError, and nothing is changed."""
        own = self.state_dict()
        odd = sorted(set(own) ^ set(state))
        if strict and odd:
            where = "the module" if odd[0] in own else "the state"
            raise ValueError(f"load_state_dict: {odd[0]!r} is in {where} alone")
        shared = [name for name in own if name in state]
        for name in shared:
            if own[name].shape != state[name].shape:
                raise ValueError(f"load_state_dict: {name}: shape {state[name].shape} for "
                                 f"{own[name].shape}")
        for name in shared:
            own[name].copy_(state[name].detach())

    # --- Modes.

    def train(self, mode: bool = True) -> Module:
        """Training or not: dropout and batch normalisation behave differently."""
        for module in self.modules():
            object.__setattr__(module, "training", mode)
        return self

    def eval(self) -> Module:
        """Not training."""
        return self.train(False)

    def requires_grad_(self, requires_grad: bool = True) -> Module:
        """Whether gradients of the parameters are wanted."""
        for parameter in self.parameters():
            parameter.requires_grad = requires_grad
        return self

    def zero_grad(self) -> None:
        """Lets every gradient go."""
        for parameter in self.parameters():
            parameter.grad = None

    def to(self, dtype: Any) -> Module:
        """Floating-point parameters and buffers in another dtype."""
        for module in self.modules():
            for tensor in [*module._parameters.values(), *module._buffers.values()]:
                if tensor is not None and tensor.is_floating_point():
                    tensor.data = tensor.detach().to(dtype)
        return self

    def set_path(self, path: str) -> None:
        """Gives every module inside its path, "model.blocks.0": recordings show who asked."""
        for name, module in self.named_modules(path):
            object.__setattr__(module, "_path", name)

    def extra_repr(self) -> str:
        """What stands between the brackets of repr."""
        return ""

    def __repr__(self) -> str:
        inside = [f"({name}): {module!r}".replace("\n", "\n  ")
                  for name, module in self._modules.items()]
        if not inside:
            return f"{type(self).__name__}({self.extra_repr()})"
        return f"{type(self).__name__}(\n  " + "\n  ".join(inside) + "\n)"
